"""The low-level interfaces of decorator plugins, which scripts name and ``tensorrt.plugin`` is written for."""

from __future__ import annotations

from typing import Any

import dovetail
from dovetail import ContractEnum, StrictAttributes

__all__ = [
    "IPluginCreatorV3Quick",
    "IPluginV3QuickAOTBuild",
    "IPluginV3QuickBuild",
    "IPluginV3QuickCore",
    "IPluginV3QuickRuntime",
    "ISymExpr",
    "ISymExprs",
    "PluginArgDataType",
    "PluginArgType",
]


class PluginArgType(ContractEnum):
    """What an extra argument of a kernel is."""

    INT = 0


class PluginArgDataType(ContractEnum):
    """How wide an extra argument of a kernel is."""

    INT8 = 0
    INT16 = 1
    INT32 = 2


class ISymExpr(StrictAttributes):
    """An extra argument of a kernel, as an expression over dimensions."""

    __slots__ = ("dtype", "expr", "type")

    def __init__(
        self,
        type: PluginArgType = PluginArgType.INT,  # noqa: A002 - the contract's name
        dtype: PluginArgDataType = PluginArgDataType.INT32,
        expr: dovetail.IDimensionExpr | None = None,
    ) -> None:
        self.type = type
        self.dtype = dtype
        self.expr = expr


class ISymExprs(StrictAttributes):
    """The extra arguments of a kernel."""

    __slots__ = ("_items",)

    def __init__(self, count: int = 0) -> None:
        self._items: list[ISymExpr | None] = [None] * count

    @property
    def nbSymExprs(self) -> int:  # noqa: N802 - the contract's name
        """How many there are."""
        return len(self._items)

    @nbSymExprs.setter
    def nbSymExprs(self, count: int) -> None:  # noqa: N802 - the contract's name
        self._items = (self._items + [None] * count)[:count]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> ISymExpr | None:
        return self._items[index]

    def __setitem__(self, index: int, value: ISymExpr) -> None:
        self._items[index] = value


class IPluginV3QuickCore(dovetail.IPluginCapability):
    """Who a plugin is: set ``plugin_name``, ``plugin_version`` and ``plugin_namespace``."""

    plugin_name: str
    plugin_version: str
    plugin_namespace: str


def _refuse(instance: object, method: str) -> Any:
    raise NotImplementedError(f"{type(instance).__name__} must implement {method}(...)")


class IPluginV3QuickBuild(dovetail.IPluginCapability):
    """What a plugin says while a network is built."""

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return int(_refuse(self, "get_num_outputs"))

    def get_output_data_types(self, input_types: Any, ranks: Any) -> Any:
        """The types of the outputs."""
        return _refuse(self, "get_output_data_types")

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        """The shapes of the outputs."""
        return _refuse(self, "get_output_shapes")

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
        """All combinations, one after the other."""
        return _refuse(self, "get_supported_format_combinations")

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        """Told the chosen combination."""
        _refuse(self, "configure_plugin")

    def get_valid_tactics(self) -> list[int]:
        """The tactics for the combination."""
        return []


class IPluginV3QuickAOTBuild(IPluginV3QuickBuild):
    """What a plugin that is compiled says while a network is built."""

    def get_kernel(self, inputs: Any, outputs: Any) -> Any:
        """The name and the code of the kernel."""
        return _refuse(self, "get_kernel")

    def get_launch_params(
        self, in_dims: Any, in_out: Any, num_inputs: int, launch_params: Any, extra_args: Any, expr_builder: Any
    ) -> None:
        """How the kernel is launched."""
        _refuse(self, "get_launch_params")

    def set_tactic(self, tactic: int) -> None:
        """The tactic to use."""
        _refuse(self, "set_tactic")

    def get_timing_cache_id(self) -> str:
        """What tells equal plugins apart in a timing cache."""
        return ""


class IPluginV3QuickRuntime(dovetail.IPluginCapability):
    """What a plugin does when it runs."""

    def set_tactic(self, tactic: int) -> None:
        """The tactic to use."""
        _refuse(self, "set_tactic")

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        in_strides: Any,
        out_strides: Any,
        stream: int,
    ) -> None:
        """Compute."""
        _refuse(self, "enqueue")

    def get_fields_to_serialize(self) -> Any:
        """What a plan keeps."""
        return _refuse(self, "get_fields_to_serialize")


class IPluginCreatorV3Quick(dovetail.IPluginCreatorInterface):
    """Makes decorator plugins of one name."""

    name: str
    plugin_version: str
    plugin_namespace: str
    field_names: Any

    def create_plugin(
        self,
        name: str,
        namespace: str,
        field_collection: Any,
        phase: dovetail.TensorRTPhase,
        quick_plugin_creation_request: Any = 0,
    ) -> Any:
        """A plugin from fields."""
        return _refuse(self, "create_plugin")
