"""A plugin that is a kernel, and a plan of it, for paper devices and real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dovetail
from dovetail import DataType, IPluginV3, IPluginV3OneBuild, IPluginV3OneCore, IPluginV3OneRuntime, KernelLaunch
from dovetail.expr import Constant, DimensionOperation, IExprBuilder

PTX = b".version 8.0 // what the paper device knows by name"


class ScalePlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """Multiplies by its tactic, or by 3."""

    plugin_name, plugin_version, plugin_namespace = "Scale", "1", "test"
    num_outputs = 1
    preferred_memory = "device"

    def __init__(self, tactics: Sequence[int] = (), factor: int = 3) -> None:
        super().__init__()
        self.tactics, self.factor = list(tactics), factor

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> ScalePlugin:
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        return twin

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        return list(input_types)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> list[Any]:
        return [dovetail.DimsExprs(inputs[0])]

    def configure_plugin(self, in_: Any, out: Any) -> None:
        return

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.format == dovetail.TensorFormat.LINEAR)

    def get_valid_tactics(self) -> list[int]:
        return self.tactics

    def get_kernel_launch(self, in_: Any, out: Any) -> KernelLaunch:
        builder, one = IExprBuilder(), Constant(1)
        count = builder.operation(
            DimensionOperation.PROD, KernelLaunch.name_dimension(0, 0), KernelLaunch.name_dimension(0, 1)
        )
        blocks = builder.operation(DimensionOperation.CEIL_DIV, count, Constant(64))
        return KernelLaunch(
            name="scale",
            code=PTX,
            grid=(blocks, one, one),
            block=(Constant(32), Constant(2), one),
            shared_bytes=Constant(0),
            arguments=(count, Constant(self.factor)),
        )

    def set_tactic(self, tactic: int) -> None:
        return

    def on_shape_change(self, in_: Any, out: Any) -> None:
        raise AssertionError("the engine launches the kernel itself")

    def enqueue(self, *arguments: Any) -> None:
        raise AssertionError("the engine launches the kernel itself")

    def attach_to_context(self, resource_context: Any) -> ScalePlugin:
        return self.clone()

    def get_fields_to_serialize(self) -> list[Any]:
        raise AssertionError("the plan has the kernel and needs no fields")


def build(plugin: ScalePlugin, providers: Sequence[str] = ("cuda", "cpu"), options: Any = None) -> bytes:
    builder = dovetail.Builder()
    network = builder.create_network()
    x = network.add_input("x", dovetail.float32, (-1, 4))
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    config = builder.create_builder_config()
    config.providers = list(providers)
    config.provider_options = options or {}
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (0, 4), (20, 4), (100, 4))
    config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(network, config))
