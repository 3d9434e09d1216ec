"""Operators that plugins run, made known to ONNX Runtime: it refuses a model with an operator that has no schema.

For every creator in Dovetail's registry there is an operator of its name in each of the served domains. It takes and
gives anything; types and shapes of results are what the plugin says.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import onnx_ir as ir

from dovetail import UnsupportedOpError, get_plugin_registry
from dovetail.network.plugin_outputs import infer_plugin_outputs, infer_plugin_types
from dovetail.plugin.quick import LayerCreator
from onnxruntime_ep_dovetail.abi import CString, LogLevel, NativeObject, OrtRuntime
from onnxruntime_ep_dovetail.graph.attributes import read_attribute
from onnxruntime_ep_dovetail.graph.read import read_tensor_type
from onnxruntime_ep_dovetail.session.options import EP_NAME

__all__ = ["CustomOps", "add_domains", "raise_interrupts", "served_domains"]

_DOMAINS: Final = ("", "trt.plugins", "dovetail.plugins")
_VARIABLE: Final = "DOVETAIL_EP_DOMAINS"
_CONTROL: Final = ("plugin_version", "plugin_namespace", "tensorrt_plugin_shape_input_indices")
_OPTIONAL: Final = 1
_VARIADIC: Final = 2
_ANY_TYPE: Final = 0
_FEW_INPUTS, _MANY_INPUTS, _ANY_INPUTS = 8, 32, 64
"""How many inputs a node may have whose plugin says how many it takes, does not say, or says that it takes any number.

One formal input could stand for any number, but a node may leave out none of those; and each that is listed makes every
session start a little later.
"""
_CHECKS_OUTPUTS: Final = 28
"""The ONNX Runtime from which on a type for an output that is not there is known to be refused."""
_MOST_OUTPUTS: Final = 16
"""How many outputs get a type when the plugin cannot be asked; those that are not there take none."""
_added: list[str] = []
_interrupts: list[BaseException] = []
"""Ctrl-C and the like in a plugin that was asked for shapes; they end the session that is being made."""


def add_domains(*names: str) -> None:
    """Have operators of these domains run by plugins too, in sessions made from now on."""
    _added.extend(name for name in names if name not in _added)


def raise_interrupts() -> None:
    """Raise what was no error in a plugin that was asked for shapes, if anything."""
    if _interrupts:
        error = _interrupts[0]
        _interrupts.clear()
        raise error


def served_domains() -> list[str]:
    """The domains in which every plugin is an operator."""
    asked = [name.strip() for name in os.environ.get(_VARIABLE, "").split(",") if name.strip()]
    spaces = [key.namespace for key in get_plugin_registry().creator_keys if key.namespace]
    return list(dict.fromkeys((*_DOMAINS, *asked, *_added, *spaces)))


class CustomOp(NativeObject):
    """An operator of a plugin's name."""

    struct = "OrtCustomOp"

    def __init__(self, runtime: OrtRuntime, creator_name: str, domain: str) -> None:
        creators = [one for one in get_plugin_registry().all_creators_recursive if one.name == creator_name]
        fields = dict.fromkeys(field.name for creator in creators for field in creator.field_names)
        self._op, self._domain, self._fields = creator_name, domain, (*fields, *_CONTROL)
        self._num_inputs = max((_count_inputs(creator) for creator in creators), default=_MANY_INPUTS)
        self._name, self._ep = CString(creator_name), CString(EP_NAME)
        super().__init__(runtime)

    def get_name(self) -> int:
        """The operator."""
        return self._name.address

    def get_execution_provider_type(self) -> int:
        """The execution provider that runs it."""
        return self._ep.address

    def get_input_type(self, _index: int) -> int:
        """Any."""
        return _ANY_TYPE

    def get_input_type_count(self) -> int:
        """As many as any node has."""
        return self._num_inputs

    def get_output_type(self, _index: int) -> int:
        """Any."""
        return _ANY_TYPE

    def get_output_type_count(self) -> int:
        """One formal output, which stands for any number."""
        return 1

    def get_input_characteristic(self, _index: int) -> int:
        """A node may leave out any of its inputs."""
        return _OPTIONAL

    def get_output_characteristic(self, _index: int) -> int:
        """Any number of outputs."""
        return _VARIADIC

    def get_input_memory_type(self, _index: int) -> int:
        """The memory of the execution provider."""
        return 0

    def get_variadic_input_min_arity(self) -> int:
        """No input is fine."""
        return 0

    def get_variadic_input_homogeneity(self) -> int:
        """Each input has a type of its own."""
        return 0

    def get_variadic_output_min_arity(self) -> int:
        """One output at least."""
        return 1

    def get_variadic_output_homogeneity(self) -> int:
        """Each output has a type of its own."""
        return 0

    def get_start_version(self) -> int:
        """Every version of the domain has it."""
        return 1

    def get_end_version(self) -> int:
        """Every version of the domain has it."""
        return 2**31 - 1

    def create_kernel_v2(self, _api: int, _info: int, _kernel: int) -> None:
        """The operator runs in partitions only."""
        raise UnsupportedOpError(
            f"operator '{self._op}' was not taken by {EP_NAME}", fix="register the plugin before the session is made"
        )

    def kernel_compute_v2(self, _context: int) -> None:
        """Never reached: no kernel is made."""
        raise UnsupportedOpError(f"operator '{self._op}' has no kernel outside of partitions")

    def kernel_destroy(self) -> None:
        """Nothing was made."""

    # types and shapes of results

    def infer_output_shape_fn(self, context: int) -> None:
        """Ask the plugin.

        What it says when it fails would be lost: ONNX Runtime reports no more than that a type is missing. With some
        types it goes on and asks for nodes, and there the same failure ends the session and is heard.
        """
        inputs = self._inputs(context)
        attributes = [one for name in self._fields if (one := self._attribute(context, name)) is not None]
        try:
            outputs: Sequence[ir.Value] = infer_plugin_outputs(self._op, self._domain, inputs, attributes)
        except BaseException as error:  # noqa: BLE001 - a plugin's code raises what it likes
            self.runtime.log(LogLevel.ERROR, f"operator '{self._op}': {str(error) or type(error).__name__}")
            if not isinstance(error, Exception):
                _interrupts.append(error)  # the plugin may not raise it again when it is asked next
            outputs = self._guess_outputs(inputs, attributes)
        for index, value in enumerate(outputs):
            if isinstance(value.type, ir.TensorType):
                self._set_output(context, index, value)

    def _guess_outputs(self, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr]) -> list[ir.Value]:
        """Results of the types that the plugin says, else of that of the first input, and with as many dimensions.

        Without any ONNX Runtime would take them for scalars, and complain of whoever reads them.
        """
        known = [value for value in inputs if value is not None]
        rank = next((len(value.shape) for value in known if value.shape), 1)
        try:
            kinds: list[ir.TypeProtocol | None] = list(infer_plugin_types(self._op, self._domain, inputs, attributes))
        except Exception:  # noqa: BLE001 - what the plugin said first was told
            first = next((value.type for value in known), ir.TensorType(ir.DataType.FLOAT))
            # Older ones end the process when an output is not there, and nothing tells how many there are.
            kinds = [first] * (_MOST_OUTPUTS if self.runtime.version >= _CHECKS_OUTPUTS else 1)
        return [
            ir.Value(name=f"output{index}", type=kind, shape=ir.Shape([None] * rank))
            for index, kind in enumerate(kinds)
        ]

    def _inputs(self, context: int) -> list[ir.Value | None]:
        count = ctypes.c_size_t()
        self.runtime.api.ShapeInferContext_GetInputCount(context, ctypes.addressof(count))
        return [self._input(context, index) for index in range(count.value)]

    def _input(self, context: int, index: int) -> ir.Value | None:
        """An input; None for one that the node leaves out."""
        info = ctypes.c_void_p()
        self.runtime.api.ShapeInferContext_GetInputTypeShape(context, index, ctypes.addressof(info))
        if not info.value:
            return None
        kind, shape = read_tensor_type(self.runtime, info.value)
        return ir.Value(name=f"input{index}", type=kind, shape=shape)

    def _attribute(self, context: int, name: str) -> ir.Attr | None:
        place = ctypes.c_void_p()
        read = self.runtime.api.raw("ShapeInferContext_GetAttribute")
        status = read(context, name.encode(), ctypes.addressof(place))
        if status:
            self.runtime.api.ReleaseStatus(status)  # the node does not carry it
        return read_attribute(self.runtime, place.value) if place.value else None

    def _set_output(self, context: int, index: int, value: ir.Value) -> None:
        api, info = self.runtime.api, ctypes.c_void_p()
        api.CreateTensorTypeAndShapeInfo(ctypes.addressof(info))
        try:
            api.SetTensorElementType(info.value, int(value.dtype or 0))
            if value.shape is not None:
                self._set_shape(info.value or 0, value.shape)
            status = api.raw("ShapeInferContext_SetOutputTypeShape")(context, index, info.value)
            if status:
                api.ReleaseStatus(status)  # the node does not use this output
        finally:
            api.ReleaseTensorTypeAndShapeInfo(info.value)

    def _set_shape(self, info: int, shape: ir.Shape) -> None:
        """Set sizes and names; a size that has neither would be taken for -1 elements."""
        api, rank = self.runtime.api, len(shape)
        sizes = (ctypes.c_int64 * rank)(*(dim if isinstance(dim, int) else -1 for dim in shape))
        api.SetDimensions(info, ctypes.addressof(sizes), rank)
        texts = [CString("" if isinstance(dim, int) else str(dim.value or f"unknown_{id(dim)}")) for dim in shape]
        names = (ctypes.c_void_p * rank)(*(text.address for text in texts))
        api.SetSymbolicDimensions(info, ctypes.addressof(names), rank)


class CustomOps:
    """The domains that one ONNX Runtime gets; made again when plugins were registered since.

    The factory and ``RegisterCustomOps`` give the same ones, and they stay for good: a session may live longer than
    whatever gave them to it.
    """

    _by_runtime: ClassVar[dict[int, CustomOps]] = {}

    @classmethod
    def of(cls, runtime: OrtRuntime) -> CustomOps:
        """Those of a runtime, of which a process can have several."""
        return cls._by_runtime.setdefault(runtime.api.address, cls(runtime))

    def __init__(self, runtime: OrtRuntime) -> None:
        self._runtime = runtime
        self._known: frozenset[tuple[str, str]] = frozenset()
        self._kept: list[Any] = []
        """Everything ever given: sessions may hold it."""
        self.domains: list[int] = []

    def add_to(self, session_options: int) -> None:
        """Add the domains to the options of a session."""
        self.refresh()
        for domain in self.domains:
            self._runtime.api.AddCustomOpDomain(session_options, domain)

    def refresh(self) -> int:
        """See which plugins there are now; how many domains that makes."""
        wanted = frozenset(
            (domain, key.name)
            for domain in served_domains()
            for key in get_plugin_registry().creator_keys
            if not _is_taken(key.name, domain)
        )
        if wanted != self._known:
            self._known = wanted
            self.domains = [self._make(domain) for domain in sorted({domain for domain, _ in wanted})]
        return len(self.domains)

    def _make(self, domain: str) -> int:
        api, place, name = self._runtime.api, ctypes.c_void_p(), CString(domain)
        api.CreateCustomOpDomain(domain.encode(), ctypes.addressof(place))
        ops = [CustomOp(self._runtime, op, domain) for other, op in sorted(self._known) if other == domain]
        for op in ops:
            api.CustomOpDomain_Add(place.value, op.address)
        self._kept.append((name, ops))
        return place.value or 0


def _count_inputs(creator: object) -> int:
    """How many inputs the nodes of a creator may have: of a function that becomes a layer it is known."""
    if not isinstance(creator, LayerCreator):
        return _MANY_INPUTS
    if creator.layer.signature.takes_any_inputs:
        return _ANY_INPUTS
    return max(_FEW_INPUTS, len(creator.layer.signature.inputs))


def _is_taken(op: str, domain: str) -> bool:
    """Whether ONNX itself has an operator of the name there."""
    from dovetail.network.onnx_schema import find_schema

    return find_schema(op, domain, 2**31 - 1) is not None
