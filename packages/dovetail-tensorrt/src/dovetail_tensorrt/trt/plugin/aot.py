"""Plugins compiled ahead of time: the author's function gives a kernel, which the plan stores and a device runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail import (
    DynamicPluginTensorDesc,
    IPluginResourceContext,
    IPluginV3OneRuntime,
    KernelLaunch,
    PluginFieldCollection,
    PluginTensorDesc,
)
from dovetail_tensorrt.trt.plugin.base import DecoratedPlugin
from dovetail_tensorrt.trt.plugin.definitions import Definition
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import ShapeExpr, SymExprs, SymInt32
from dovetail_tensorrt.trt.plugin.launch import KernelLaunchParams

__all__ = ["AotPlugin"]

_EXPECTED: Final = "(kernel name, PTX or cubin, KernelLaunchParams, SymExprs)"


class AotPlugin(DecoratedPlugin, IPluginV3OneRuntime):
    """A plugin that is a kernel of a device."""

    def __init__(self, definition: Definition, attributes: Mapping[str, Any]) -> None:
        super().__init__(definition, attributes)
        self.timing_cache_id = _digest(attributes)  # attributes are in the kernel, so each value has its own timings

    def get_kernel_launch(
        self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]
    ) -> KernelLaunch:
        """The kernel for these types and formats with the tactic that is set."""
        callback = self.definition.aot_impl
        if callback is None:
            raise DecoratorError("the plugin has no @aot_impl", where=self.definition.where)
        inputs, outputs = self.describe(in_, out)
        values = self.definition.select(callback, self.attributes)
        last: tuple[Any, ...] = (self.tactic,) if callback.takes_tactic else ()
        return self._read(callback.function(*inputs, *values, tuple(outputs), *last))

    def _input_exprs(self, index: int, desc: DynamicPluginTensorDesc) -> list[ShapeExpr]:
        """The dimensions of an input, by the names that a launch has for what varies."""
        sizes = desc.desc.dims
        return [
            ShapeExpr(size if size >= 0 else KernelLaunch.name_dimension(index, axis))
            for axis, size in enumerate(sizes)
        ]

    def _read(self, returned: Any) -> KernelLaunch:
        if not isinstance(returned, tuple) or len(returned) != 4:
            raise DecoratorError("aot_impl returned something else", where=self.definition.where, expected=_EXPECTED)
        name, code, params, extra = returned
        if not isinstance(params, KernelLaunchParams) or not isinstance(extra, SymExprs | tuple | list):
            raise DecoratorError(
                "aot_impl returned something else",
                where=self.definition.where,
                expected=_EXPECTED,
                got=[type(each).__name__ for each in returned],
            )
        return KernelLaunch(
            name=name.decode() if isinstance(name, bytes) else name,
            code=code.encode() if isinstance(code, str) else bytes(code),
            grid=(params.grid_x.expr, params.grid_y.expr, params.grid_z.expr),
            block=(params.block_x.expr, params.block_y.expr, params.block_z.expr),
            shared_bytes=params.shared_mem.expr,
            arguments=tuple(self._read_argument(index, each) for index, each in enumerate(extra)),
        )

    def _read_argument(self, index: int, argument: Any) -> Any:
        if not isinstance(argument, SymInt32) or argument.is_fake or argument.is_size_tensor:
            raise DecoratorError(
                f"extra argument {index} is not one that a kernel can be given",
                where=self.definition.where,
                expected="SymInt32 with a value",
                got=repr(argument),
            )
        return argument.expr

    def attach_to_context(self, resource_context: IPluginResourceContext) -> AotPlugin:
        """A clone."""
        twin: AotPlugin = self.clone()
        return twin

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> None:
        """The kernel's launch is computed by the engine."""

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Refuse: the engine launches the kernel itself."""
        raise DecoratorError(
            "a kernel compiled ahead of time is launched by a device, not by this object", where=self.definition.where
        )

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """None: the kernel holds what the attributes were for."""
        return PluginFieldCollection()


def _digest(attributes: Mapping[str, Any]) -> str:
    """A short text that differs where an attribute does."""
    found = hashlib.sha256()
    for name, value in attributes.items():
        raw = value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()
        found.update(f"{name}:{len(raw)}:".encode() + raw)
    return found.hexdigest()[:16]
