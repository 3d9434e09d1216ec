"""A plugin for every type that weak typing can propose, and a short way to build networks of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import Manifest, decode_manifest
from dovetail.plugin import as_array
from dovetail.quantize import convert_type
from tests.support.plugins import PlainCreator, ScalePlugin

ALL_TYPES = (dt.float32, dt.float16, dt.bfloat16, dt.fp8, dt.int8)


class TypedPlugin(ScalePlugin):
    """y = x * factor, one type on both sides; types in ``slow`` take a millisecond longer."""

    formats = (dt.TensorFormat.LINEAR,)
    types = ALL_TYPES
    slow: Sequence[Any] = (dt.float32,)
    tactics = ()

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        self.note("proposed", (pos, desc.type, desc.scale))
        return super().supports_format_combination(pos, in_out, num_inputs)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        self.note("enqueue", (input_desc[0].copy(), output_desc[0].copy()))
        real = convert_type(x, np.dtype(np.float32), source_scale=input_desc[0].scale)
        y[...] = convert_type(real * np.float32(self.factor), y.dtype, target_scale=output_desc[0].scale)
        if input_desc[0].type in self.slow:
            time.sleep(0.001)


class Log(dt.ILogger):
    """Keeps messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)


class Built:
    """A weakly typed network of a chain of plugins over one input ``x``: its tensors are x, t1, t2, ... and y."""

    def __init__(
        self,
        *plugins: Any,
        flags: Sequence[Any] = (),
        ranges: dict[str, tuple[float, float]] | None = None,
        shape: tuple[int, ...] = (4, 8),
        profile: Any = None,
        strongly_typed: bool = False,
        calibrator: Any = None,
        configure: Callable[[Any], None] | None = None,
        log: Log | None = None,
    ) -> None:
        self.log = log or Log()
        self.builder = dt.Builder(self.log)
        network = self.builder.create_network(strongly_typed=strongly_typed)
        tensors = [network.add_input("x", dt.float32, shape)]
        for number, plugin in enumerate(plugins, 1):
            tensors.append(network.add_plugin_v3([tensors[-1]], [], plugin).get_output(0))
            tensors[-1].name = f"t{number}" if number < len(plugins) else "y"
        network.mark_output(tensors[-1])
        for tensor in tensors:
            if ranges and tensor.name in ranges:
                tensor.dynamic_range = ranges[tensor.name]
        config = self.builder.create_builder_config()
        for flag in flags:
            config.set_flag(flag)
        if profile is not None:
            bounds = self.builder.create_optimization_profile()
            bounds.set_shape("x", *profile)
            config.add_optimization_profile(bounds)
        config.int8_calibrator = calibrator
        if configure is not None:
            configure(config)
        self.plan = self.builder.build_serialized_network(network, config)
        self.kind = type(plugins[0])

    @property
    def manifest(self) -> Manifest:
        return decode_manifest(PlanFile.from_bytes(self.plan).manifest)

    def load(self) -> Any:
        runtime = dt.Runtime()
        runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", self.kind), "")
        return runtime.deserialize_cuda_engine(self.plan)

    @property
    def steps(self) -> list[str]:
        """The kinds of steps, reformats with their types."""
        program = self.manifest.programs[0]
        return [
            f"{program.values[s.inputs[0]].dtype}->{program.values[s.outputs[0]].dtype}"
            if s.kind == "reformat"
            else s.kind
            for s in program.steps
        ]

    def ports(self, number: int = 0) -> list[tuple[str, float]]:
        """Type and scale of the input and the output of a plugin step."""
        program = self.manifest.programs[0]
        step = [step for step in program.steps if step.kind == "plugin"][number]
        return [(program.values[i].dtype, program.values[i].scale) for i in (*step.inputs, *step.outputs)]
