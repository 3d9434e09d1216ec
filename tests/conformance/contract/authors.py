"""Plugins as authors outside this project write them: from the rules of the contract, with one import changed.

Nothing here knows the engine. ``Plus`` inherits everything and keeps a trace of (object number, method, what was
passed), which its clones share and the tests read. ``Parts`` is composed of three objects.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import dovetail as trt
from dovetail.plugin import as_array

LINEAR = trt.TensorFormat.LINEAR
_numbers = itertools.count(1)


class Plus(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """y = x + addend for any type that NumPy can add; LINEAR, the default tactic."""

    formats: tuple[Any, ...] = (LINEAR,)
    tactics: tuple[int, ...] = ()

    def __init__(self, addend: float = 1.0, trace: list[Any] | None = None) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name = "Plus"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.num_outputs = 1
        self.addend = addend
        self.tactic: int | None = None
        self.trace = [] if trace is None else trace
        self.number = next(_numbers)

    def note(self, method: str, detail: Any = None) -> None:
        self.trace.append((self.number, method, detail))

    # IPluginV3

    def get_capability_interface(self, type: Any) -> Any:
        self.note("get_capability_interface", type)
        return self

    def clone(self) -> Any:
        self.note("clone")
        cloned = self.__class__()
        number = cloned.number
        cloned.__dict__.update(self.__dict__)
        cloned.number = number
        return cloned

    def destroy(self) -> None:
        self.note("destroy")

    # build

    def get_output_data_types(self, input_types: Any) -> Any:
        self.note("get_output_data_types", list(input_types))
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.note("get_output_shapes", ([list(d) for d in inputs], [list(d) for d in shape_inputs]))
        output_dims = trt.DimsExprs(len(inputs[0]))
        for i in range(len(output_dims)):
            output_dims[i] = inputs[0][i]
        return [output_dims]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        assert pos < len(in_out)
        desc = in_out[pos].desc
        self.note("supports_format_combination", (pos, desc.type, desc.format, num_inputs))
        return desc.format in self.formats and (pos == 0 or desc.format == in_out[0].desc.format)

    def configure_plugin(self, inp: Any, out: Any) -> None:
        self.note("configure_plugin", ([d.copy() for d in inp], [d.copy() for d in out]))

    def get_valid_tactics(self) -> Any:
        self.note("get_valid_tactics")
        return list(self.tactics)

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        self.note("get_workspace_size", ([d.copy() for d in inp], [d.copy() for d in out]))
        return 0

    # runtime

    def set_tactic(self, tactic: int) -> None:
        self.note("set_tactic", tactic)
        self.tactic = tactic

    def on_shape_change(self, inp: Any, out: Any) -> None:
        self.note("on_shape_change", ([d.copy() for d in inp], [d.copy() for d in out]))

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.note("enqueue", (self.tactic, [tuple(d.dims) for d in input_desc], list(inputs), list(outputs), workspace))
        self.compute(input_desc, output_desc, inputs, outputs)

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.copyto(y, (x + x.dtype.type(self.addend)).astype(y.dtype))

    def attach_to_context(self, context: Any) -> Any:
        self.note("attach_to_context", context)
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        self.note("get_fields_to_serialize")
        return trt.PluginFieldCollection(
            [trt.PluginField("addend", np.array([self.addend], dtype=np.float32), trt.PluginFieldType.FLOAT32)]
        )


class PlusCreator(trt.IPluginCreatorV3One):
    """A creator as samples write it: a list of field names, fields read by name with ``.data[0]``."""

    def __init__(self, cls: type[Plus] = Plus, trace: list[Any] | None = None) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name = "Plus"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = [trt.PluginField("addend", np.array([]), trt.PluginFieldType.FLOAT32)]
        self.cls = cls
        self.trace = trace
        self.created: list[Any] = []

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        addend = 1.0
        for f in fc:
            if f.name == "addend":
                addend = float(f.data[0])
        plugin = self.cls(addend, self.trace)
        self.created.append((name, list(fc), phase, plugin))
        return plugin


class Many(Plus):
    """Three outputs of three types."""

    def __init__(self, addend: float = 1.0, trace: Any = None) -> None:
        super().__init__(addend, trace)
        self.num_outputs = 3

    def get_output_data_types(self, input_types: Any) -> Any:
        return (input_types[0], trt.float16, trt.DataType.INT32)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        turned = trt.DimsExprs([inputs[0][1], inputs[0][0]])
        return [trt.DimsExprs(inputs[0]), turned, trt.DimsExprs([exprBuilder.constant(2)])]

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert [d.type for d in output_desc] == [trt.float32, trt.float16, trt.int32]
        x = as_array(inputs[0], input_desc[0])
        same, turned, shape = (as_array(a, d) for a, d in zip(outputs, output_desc, strict=True))
        same[...], turned[...], shape[...] = x, x.T, x.shape


class Filled(Plus):
    """A tensor of the shape that all shape inputs say together, filled with the addend."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.note("shape_inputs", [len(dims) for dims in shape_inputs])
        return [trt.DimsExprs([value for dims in shape_inputs for value in dims])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        assert (num_inputs, len(in_out)) == (1, 2)
        return bool(in_out[pos].desc.format == LINEAR)

    def configure_plugin(self, inp: Any, out: Any) -> None:
        assert (len(inp), len(out)) == (1, 1)
        super().configure_plugin(inp, out)

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert (len(input_desc), len(inputs)) == (1, 1)
        as_array(outputs[0], output_desc[0])[...] = self.addend


def breaking(method: str, result: Any) -> type[Plus]:
    """Plus with one method that returns something else, or raises."""

    def broken(self: Any, *args: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return type("Broken", (Plus,), {method: broken})


# composition: three objects, and one that holds them


class PartsCore(trt.IPluginV3OneCore):
    def __init__(self) -> None:
        trt.IPluginV3OneCore.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Parts", "2", "acme"


class PartsBuild(trt.IPluginV3OneBuild):
    def __init__(self) -> None:
        trt.IPluginV3OneBuild.__init__(self)
        self.num_outputs = 1

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].desc.format == LINEAR and in_out[pos].desc.type == trt.DataType.FLOAT

    def configure_plugin(self, inp: Any, out: Any) -> None:
        pass

    def get_valid_tactics(self) -> Any:
        return [3, 7]


class PartsRuntime(trt.IPluginV3OneRuntime):
    def __init__(self, owner: Parts, scale: float) -> None:
        trt.IPluginV3OneRuntime.__init__(self)
        self.owner, self.scale, self.tactic = owner, scale, 0

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def on_shape_change(self, inp: Any, out: Any) -> None:
        assert self.tactic in (3, 7)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: Any, stream: Any
    ) -> None:
        count = trt.volume(input_desc[0].dims)
        x = np.ctypeslib.as_array((ctypes.c_float * count).from_address(inputs[0]))
        y = np.ctypeslib.as_array((ctypes.c_float * count).from_address(outputs[0]))
        np.multiply(x, np.float32(self.scale), out=y)

    def attach_to_context(self, context: Any) -> Any:
        return self.owner.clone()

    def get_fields_to_serialize(self) -> Any:
        return [trt.PluginField("scale", np.array([self.scale], np.float64), trt.PluginFieldType.FLOAT64)]


class Parts(trt.IPluginV3):
    """y = x * scale, with its capabilities in separate objects; in the runtime phase it has no build capability."""

    def __init__(self, scale: float = 2.0, phase: Any = trt.TensorRTPhase.BUILD) -> None:
        trt.IPluginV3.__init__(self)
        self.phase = phase
        self.core = PartsCore()
        self.build = PartsBuild() if phase == trt.TensorRTPhase.BUILD else None
        self.runtime = PartsRuntime(self, scale)

    def get_capability_interface(self, type: Any) -> Any:
        if type == trt.PluginCapabilityType.CORE:
            return self.core
        if type == trt.PluginCapabilityType.BUILD:
            return self.build
        assert type == trt.PluginCapabilityType.RUNTIME
        return self.runtime

    def clone(self) -> Any:
        twin = Parts(self.runtime.scale, self.phase)
        twin.runtime.tactic = self.runtime.tactic
        return twin


class PartsCreator(trt.IPluginCreatorV3One):
    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "Parts", "2", "acme"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("scale", np.array([]), trt.PluginFieldType.FLOAT64)]
        )

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        return Parts(float(fc[0].data.item()), phase)


# what a script does around a plugin


class Messages(trt.ILogger):
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.messages: list[tuple[Any, str]] = []

    def log(self, severity: Any, msg: str) -> None:
        self.messages.append((severity, msg))

    def text(self, worst: Any = trt.Logger.WARNING) -> str:
        """Everything at least as bad as a warning."""
        return "\n".join(msg for severity, msg in self.messages if severity <= worst)


Fill = Callable[[Any], Any]


def build(
    fill: Fill,
    *,
    profiles: Iterable[dict[str, Any]] = (),
    configure: Callable[[Any], None] | None = None,
    logger: Any = None,
) -> bytes:
    """A plan of the network that ``fill`` describes; what ``fill`` returns is marked as outputs y0, y1, ..."""
    builder = trt.Builder(logger or Messages())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    outputs = fill(network)
    for i, tensor in enumerate(outputs if isinstance(outputs, list | tuple) else [outputs]):
        tensor.name = f"y{i}"
        network.mark_output(tensor)
    config = builder.create_builder_config()
    for shapes in profiles:
        profile = builder.create_optimization_profile()
        for name, bounds in shapes.items():
            profile.set_shape(name, *bounds)
        config.add_optimization_profile(profile)
    if configure is not None:
        configure(config)
    plan: bytes = builder.build_serialized_network(network, config)
    return plan


def load(plan: bytes, *creators: Any) -> Any:
    """An engine; the creators are in the runtime's own registry."""
    runtime = trt.Runtime(Messages())
    for creator in creators:
        runtime.get_plugin_registry().register_creator(creator, creator.plugin_namespace)
    return runtime.deserialize_cuda_engine(plan)


def one_plugin(plugin: Any, shape: tuple[int, ...] = (2, 3), dtype: Any = trt.float32) -> Fill:
    """A network of one plugin between input x and its outputs."""

    def fill(network: Any) -> Any:
        layer = network.add_plugin_v3([network.add_input("x", dtype, shape)], [], plugin)
        return [layer.get_output(i) for i in range(layer.num_outputs)]

    return fill


def run_bound(engine: Any, feeds: dict[str, np.ndarray], context: Any = None) -> dict[str, np.ndarray]:
    """Run as low-level scripts do: addresses of inputs and outputs, then ``execute_async_v3``."""
    context = context or engine.create_execution_context()
    kept, results = [], {}
    for name, array in feeds.items():
        array = np.ascontiguousarray(array)
        kept.append(array)
        context.set_input_shape(name, array.shape)
        context.set_tensor_address(name, array.ctypes.data)
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
            shape = context.get_tensor_shape(name)
            results[name] = np.zeros(tuple(shape), trt.nptype(engine.get_tensor_dtype(name)))
            context.set_tensor_address(name, results[name].ctypes.data)
    assert context.execute_async_v3(stream_handle=0)
    return results


def methods(trace: list[Any], *names: str) -> list[Any]:
    """The calls of these methods, in order."""
    return [entry for entry in trace if not names or entry[1] in names]


def details(trace: list[Any], name: str) -> list[Any]:
    """What was passed to a method, call by call."""
    return [detail for _, method, detail in trace if method == name]
