"""The three capabilities of a C++ plugin under the contract: each method is one call of the library."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import PluginError
from dovetail.expr import DimsExprs, IExprBuilder
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.plugin.handle import MAX_OUTPUTS
from dovetail.plugin.interfaces import (
    PREFERS_DEVICE,
    APILanguage,
    IPluginResourceContext,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from dovetail.plugin.native.call_memory import new_call_memory
from dovetail.plugin.native.convert import pack_descs, pack_dynamic_descs, pack_proposal, read_fields, read_text
from dovetail.plugin.native.exprs import ShapeExchange
from dovetail.plugin.native.layout import NativeIdentity
from dovetail.plugin.native.runs import PreparedEnqueue
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc

if TYPE_CHECKING:
    from dovetail.plugin.native.plugin import NativePlugin

__all__ = ["NativeBuild", "NativeCore", "NativeRuntime"]

_TYPE_NUMBERS: Final = frozenset(map(int, DataType))
_MAX_TACTICS: Final = 1 << 16
"""Limit of the tactics of a layer: a larger number is a mistake, and timing them would never end."""
_UNSET: Final = -1
"""What the headers give each output before the plugin is asked."""


class PartOfPlugin:
    """A capability's way to its plugin, which it does not keep alive: the plugin keeps its capabilities."""

    api_language = APILanguage.CPP

    def __init__(self, plugin: NativePlugin, address: int) -> None:
        self._reference: Final = weakref.ref(plugin)
        self._address: Final = address

    @property
    def _plugin(self) -> NativePlugin:
        plugin = self._reference()
        if plugin is None:
            raise PluginError(
                "a capability of a C++ plugin was used after the plugin was let go", fix="keep the plugin"
            )
        return plugin

    def _call(self, function: str, callback: str, *arguments: Any) -> None:
        self._plugin.call(function, callback, self._address, *arguments)


class NativeCore(PartOfPlugin, IPluginV3OneCore):
    """Identity of a C++ plugin, read when the capability is first used."""

    def __init__(self, plugin: NativePlugin, address: int) -> None:
        super().__init__(plugin, address)
        self.read_identity()

    def read_identity(self) -> None:
        """Read name, version and namespace from the plugin."""
        identity = NativeIdentity()
        self._call("core_identity", "getPluginName", byref(identity))
        self.plugin_name = self._text(identity.name, "getPluginName")
        self.plugin_version = self._text(identity.version, "getPluginVersion")
        self.plugin_namespace = self._text(identity.namespace, "getPluginNamespace")

    def _text(self, raw: bytes | None, callback: str) -> str:
        text = read_text(raw)
        if text is None:
            raise PluginError(f"{callback} returned null", where=self._plugin.where)
        return text


class NativeBuild(PartOfPlugin, IPluginV3OneBuildV2):
    """What a C++ plugin needs and offers while a plan is made."""

    def _number(self, function: str, callback: str) -> int:
        number = c_int32()
        self._call(function, callback, byref(number))
        return number.value

    def _text(self, function: str, callback: str) -> str | None:
        text = c_char_p()
        self._call(function, callback, byref(text))
        return read_text(text.value)

    def _require_success(self, callback: str, status: c_int32) -> None:
        if status.value:
            raise PluginError(f"{callback} returned status {status.value}", where=self._plugin.where, expected="0")

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        """``getNbOutputs``."""
        return self._number("build_num_outputs", "getNbOutputs")

    @property
    def format_combination_limit(self) -> int:  # type: ignore[override]
        """``getFormatCombinationLimit``."""
        return self._number("build_format_limit", "getFormatCombinationLimit")

    @property
    def timing_cache_id(self) -> str | None:  # type: ignore[override]
        """``getTimingCacheID``."""
        return self._text("build_timing_cache_id", "getTimingCacheID")

    @property
    def metadata_string(self) -> str | None:  # type: ignore[override]
        """``getMetadataString``."""
        return self._text("build_metadata", "getMetadataString")

    @property
    def preferred_memory(self) -> str:  # type: ignore[override]
        """A device for a library with CUDA in it, else the host."""
        return PREFERS_DEVICE if self._plugin.image.uses_cuda else ""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """``getOutputDataTypes``, which must set the type of every output."""
        return self._ask_types(input_types, None)

    def _ask_types(self, input_types: Sequence[DataType], ranks: Sequence[int] | None) -> list[DataType]:
        count, status, inputs = self._require_count(), c_int32(), len(input_types)
        given, answer = (c_int32 * inputs)(*map(int, input_types)), (c_int32 * count)()
        told = None if ranks is None else (c_int32 * inputs)(*ranks)
        callback = "getOutputDataTypes"
        self._call("build_output_types", callback, answer, count, given, told, inputs, byref(status))
        self._require_success(callback, status)
        for index, number in enumerate(answer):
            if number not in _TYPE_NUMBERS:
                unset = "was given no type" if number == _UNSET else f"was given {number}, which is no type"
                raise PluginError(f"{callback}: output {index} {unset}", where=self._plugin.where)
        return [DataType(number) for number in answer]

    def _require_count(self) -> int:
        """The number of outputs, of which a library can only be asked where it can be."""
        count = self.num_outputs
        if not 0 <= count <= MAX_OUTPUTS:
            raise PluginError(
                "getNbOutputs returned no number of outputs",
                where=self._plugin.where,
                expected=f"1 to {MAX_OUTPUTS}",
                got=count,
            )
        return count

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> list[DimsExprs]:
        """``getOutputShapes``, which must give every output a rank and every dimension an expression."""
        exchange, status = ShapeExchange(inputs, shape_inputs), c_int32()
        self._call(
            "build_output_shapes",
            "getOutputShapes",
            exchange.exprs,
            len(exchange.exprs),
            byref(exchange.inputs),
            byref(exchange.shape_inputs),
            self._require_count(),
            exchange.sink,
            0,
            byref(status),
        )
        self._require_success("getOutputShapes", status)
        exchange.raise_problem()
        return exchange.answer

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> int:
        """The status of ``configurePlugin``."""
        status = c_int32()
        with new_call_memory() as memory:
            inputs = memory.place(pack_dynamic_descs(in_), "the input descriptors of configurePlugin")
            outputs = memory.place(pack_dynamic_descs(out), "the output descriptors of configurePlugin")
            self._call("build_configure", "configurePlugin", inputs, len(inputs), outputs, len(outputs), byref(status))
        return status.value

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """``supportsFormatCombination``; positions above ``pos`` have no type and no format."""
        accepted, count, callback = c_int32(), len(in_out), "supportsFormatCombination"
        with new_call_memory() as memory:
            descs = memory.place(pack_proposal(pos, in_out), f"the descriptors of {callback}")
            self._call("build_supports", callback, pos, descs, num_inputs, count - num_inputs, byref(accepted))
        return bool(accepted.value)

    def get_workspace_size(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> int:
        """``getWorkspaceSize``."""
        size = c_uint64()
        with new_call_memory() as memory:
            inputs = memory.place(pack_dynamic_descs(in_), "the input descriptors of getWorkspaceSize")
            outputs = memory.place(pack_dynamic_descs(out), "the output descriptors of getWorkspaceSize")
            self._call("build_workspace", "getWorkspaceSize", inputs, len(inputs), outputs, len(outputs), byref(size))
        return size.value

    def get_valid_tactics(self) -> list[int]:
        """``getValidTactics``, as many as ``getNbTactics`` says."""
        count, status = self._number("build_nb_tactics", "getNbTactics"), c_int32()
        if not 0 <= count <= _MAX_TACTICS:
            raise PluginError(
                "getNbTactics returned a number out of range",
                where=self._plugin.where,
                expected=f"0 to {_MAX_TACTICS}",
                got=count,
                fix="return the number of tactics that getValidTactics fills in",
            )
        tactics = (c_int32 * count)()
        if count:
            self._call("build_tactics", "getValidTactics", tactics, count, byref(status))
            self._require_success("getValidTactics", status)
        return list(tactics)

    def get_aliased_input(self, output_index: int) -> int:
        """``getAliasedInput`` of version 2 of the interface, -1 of version 1."""
        number = c_int32(-1)
        self._call("build_aliased_input", "getAliasedInput", output_index, byref(number))
        return number.value


class NativeRuntime(PartOfPlugin, IPluginV3OneRuntime):
    """How a C++ plugin runs."""

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> int:
        """The status of ``onShapeChange``."""
        status, callback = c_int32(), "onShapeChange"
        with new_call_memory() as memory:
            inputs = memory.place(pack_descs(in_), "the input descriptors of onShapeChange")
            outputs = memory.place(pack_descs(out), "the output descriptors of onShapeChange")
            self._call("runtime_shape_change", callback, inputs, len(inputs), outputs, len(outputs), byref(status))
        return status.value

    def set_tactic(self, tactic: int) -> int:
        """The status of ``setTactic``."""
        status = c_int32()
        self._call("runtime_set_tactic", "setTactic", tactic, byref(status))
        return status.value

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> int:
        """The status of ``enqueue``."""
        with new_call_memory() as memory:
            run = PreparedEnqueue(self._plugin, self._address, input_desc, output_desc, memory)
            return run(list(map(int, inputs)), list(map(int, outputs)), int(workspace), int(stream))

    def prepare_enqueue(
        self, input_desc: Sequence[PluginTensorDesc], output_desc: Sequence[PluginTensorDesc]
    ) -> PreparedEnqueue:
        """``enqueue`` for many runs with the same descriptors."""
        return PreparedEnqueue(self._plugin, self._address, input_desc, output_desc)

    def attach_to_context(self, resource_context: IPluginResourceContext) -> NativePlugin:
        """``attachToContext``."""
        return self._plugin.attach(self._address, resource_context)

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """``getFieldsToSerialize``, copied."""
        fields = c_void_p()
        self._call("runtime_fields", "getFieldsToSerialize", byref(fields))
        plugin = self._plugin
        return read_fields(fields.value, plugin.image.table.size_of_dims, "getFieldsToSerialize", plugin.where)
