"""The build capability of a C++ plugin of the quick interface, which lists its combinations of types and formats."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32
from typing import Any, ClassVar, Final

from dovetail.errors import PluginError
from dovetail.plugin.interfaces import InterfaceInfo
from dovetail.plugin.native.capabilities import NativeBuild
from dovetail.plugin.native.convert import pack_proposal
from dovetail.plugin.native.layout import FormatsSink
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat

__all__ = ["QUICK_MAJOR", "NativeQuickBuild"]

QUICK_MAJOR: Final = 3
"""The version of the build capability under which the headers adapt a quick plugin."""

_Layout = tuple[DataType, TensorFormat]


class NativeQuickBuild(NativeBuild):
    """What a C++ plugin of ``IPluginV3QuickBuild`` needs and offers while a plan is made."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3QUICK_BUILD", 1, 0)
    takes_ranks = True

    def get_output_data_types(
        self, input_types: Sequence[DataType], ranks: Sequence[int | None] = ()
    ) -> list[DataType]:
        """``getOutputDataTypes`` with the ranks of the inputs, which must be known."""
        known = [rank for rank in ranks if rank is not None]
        if len(known) != len(input_types):
            raise PluginError(
                "the rank of an input is not known", where=self._plugin.where, fix="give the tensor a shape"
            )
        return self._ask_types(input_types, known)

    def get_supported_format_combinations(
        self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int
    ) -> list[PluginTensorDesc]:
        """``getSupportedFormatCombinations``, one tensor after the other."""
        last = len(in_out) - 1
        return [PluginTensorDesc((), *layout) for layout in self._list(last, in_out, num_inputs)]

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether a combination that is listed begins like this."""
        given = [(each.desc.type, each.desc.format) for each in in_out[: pos + 1]]
        listed, count = self._list(pos, in_out, num_inputs), len(in_out)
        return any(listed[start : start + pos + 1] == given for start in range(0, len(listed), count))

    def _list(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> list[_Layout]:
        """What the plugin lists when it knows the tensors up to a position."""
        rows, status, callback = list[tuple[int, int]](), c_int32(), "getSupportedFormatCombinations"

        def receive(token: int, types: Any, formats: Any, count: int) -> None:
            rows.extend((types[index], formats[index]) for index in range(count))

        sink, descs = FormatsSink(receive), pack_proposal(pos, in_out)
        outputs = len(in_out) - num_inputs
        self._call("build_combinations", callback, descs, num_inputs, outputs, sink, 0, byref(status))
        self._require_success(callback, status)
        return [self._read(row, callback) for row in rows]

    def _read(self, row: tuple[int, int], callback: str) -> _Layout:
        try:
            return DataType(row[0]), TensorFormat(row[1])
        except ValueError:
            raise PluginError(
                f"{callback} returned no type and format",
                where=self._plugin.where,
                got=f"type {row[0]}, format {row[1]}",
            ) from None
