"""Plugins that break one rule about clones, contexts or fields."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.types import TensorRTPhase
from tests.null.plugin.check.faults import breaks
from tests.null.plugin.check.good import Scale, ScaleCreator


@breaks("R24", "clone returned the object itself")
class ClonesItself(Scale):
    def clone(self) -> Any:
        return self


@breaks("R24", "clone returned None")
class ClonesNothing(Scale):
    def clone(self) -> Any:
        return None


@breaks("R25", "get_fields_to_serialize gives alpha=[1.0] instead of alpha=[0.5]")
class CloneForgetsParameter(Scale):
    def clone(self) -> Any:
        twin = self.__class__()
        twin.timing_cache_id, twin.metadata_string, twin.tactic = (
            self.timing_cache_id,
            self.metadata_string,
            self.tactic,
        )
        return twin


@breaks("R25", "on a clone enqueue: output 0, element")
class CloneForgetsHiddenParameter(Scale):
    factor = 1.0

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.factor = 2.0

    def clone(self) -> Any:
        twin = self.copy()
        twin.factor = 1.0
        return twin

    def enqueue(self, input_desc: Any, output_desc: Any, *addresses: Any) -> Any:
        kept, self.alpha = self.alpha, self.alpha * self.factor
        super().enqueue(input_desc, output_desc, *addresses)
        self.alpha = kept


@breaks("R26", "using the clone changed the original: self.seen")
class CloneSharesList(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.seen: list[Any] = []

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.seen.append(tuple(in_[0].max))

    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.copy()
        twin.seen = self.seen if self.is_clone else list(self.seen)
        return twin

    is_clone = False

    def clone(self) -> Any:
        twin = self.copy()
        twin.is_clone = True
        return twin


@breaks("R27", "after set_tactic(2), self.tactic is 2 in the original and 0 in what clone returned")
class CloneDropsTactic(Scale):
    def clone(self) -> Any:
        twin = self.copy()
        twin.tactic = 0
        return twin


@breaks("R28", "clone allocated 80")
class CloneWorks(Scale):
    def clone(self) -> Any:
        np.arange(1_000_000, dtype=np.float64).sum()
        return self.copy()


@breaks("R29", "attach_to_context returned the object itself")
class AttachesItself(Scale):
    def attach_to_context(self, resource_context: Any) -> Any:
        return self


@breaks("R30", "on an attached object get_fields_to_serialize gives alpha=[1.0] instead of alpha=[0.5]")
class AttachForgetsParameter(Scale):
    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.__class__()
        twin.timing_cache_id, twin.tactic = self.timing_cache_id, self.tactic
        return twin


@breaks("R31", "after set_tactic(2), self.tactic is 2 in the original and 0 in what attach_to_context returned")
class AttachDropsTactic(Scale):
    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.copy()
        twin.tactic = 0
        return twin


@breaks("R32", "attach_to_context changed the original: self.context")
class AttachChangesOriginal(Scale):
    context: Any = None

    def attach_to_context(self, resource_context: Any) -> Any:
        self.context = resource_context
        return self.copy()


@breaks("R32", "using the attached object changed the original: self.shapes")
class AttachSharesState(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.shapes: dict[str, Any] = {}

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        self.shapes["x"] = tuple(in_[0].dims)

    def clone(self) -> Any:
        twin = self.copy()
        twin.shapes = dict(self.shapes)
        return twin


@breaks("R33", "the object of context 1 used the resources of context 2")
class SharesContext(Scale):
    latest: list[Any] = []  # noqa: RUF012 - shared by all objects: that is the fault

    def attach_to_context(self, resource_context: Any) -> Any:
        self.latest[:] = [resource_context]
        return self.copy()

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        allocator = self.latest[0].gpu_allocator
        allocator.deallocate(allocator.allocate(64, 64, 0))


@breaks("R34", "field 0 of get_fields_to_serialize is 0.5, expected a PluginField")
class SerializesNumbers(Scale):
    def get_fields_to_serialize(self) -> Any:
        return [self.alpha]


@breaks("R34", "has 2 bytes: no whole number of FLOAT32")
class SerializesWrongType(Scale):
    def get_fields_to_serialize(self) -> Any:
        return [PluginField("alpha", np.array([self.alpha], np.float16), PluginFieldType.FLOAT32)]


@breaks("R35", "call 1 gave alpha=[0.5], calls=[0], call 2 gave alpha=[0.5], calls=[1]")
class SerializesCounter(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.calls = itertools.count()

    def get_fields_to_serialize(self) -> Any:
        calls = np.array([next(self.calls)], np.int32)
        return PluginFieldCollection(
            [*super().get_fields_to_serialize(), PluginField("calls", calls, PluginFieldType.INT32)]
        )

    def copy(self) -> Any:
        twin = super().copy()
        twin.calls = itertools.count()
        return twin


@breaks("R36", "create_plugin raised AttributeError")
class RuntimeNeedsOtherField(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        wanted = "scale" if phase == TensorRTPhase.RUNTIME else "alpha"
        return self.plugin(float(field_collection.find(wanted).data[0]))


@breaks("R37", "stored alpha=[0.5], then nothing")
class RuntimeSerializesNothing(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        plugin = super().create_plugin(name, field_collection, phase)
        if phase == TensorRTPhase.RUNTIME:
            plugin.__class__ = _SerializesNothing
        return plugin


class _SerializesNothing(Scale):
    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection()


@breaks("R38", "before serialization")
class ForgetsToSerialize(Scale):
    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection()


@breaks("R38", "on_shape_change raised AssertionError")
class NeedsConfiguration(Scale):
    rank: int | None = None

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.rank = len(in_[0].max)

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        assert self.rank is not None, "never configured"


@breaks("R39", "phase BUILD: self.alpha is a view of the memory of field 'alpha'")
class KeepsView(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        plugin = super().create_plugin(name, field_collection, phase)
        plugin.alpha = field_collection.find("alpha").buffer[:1]
        plugin.__class__ = _ReadsView
        return plugin


class _ReadsView(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, *addresses: Any) -> Any:
        kept, self.alpha = self.alpha, float(self.alpha[0])  # type: ignore[index]
        super().enqueue(input_desc, output_desc, *addresses)
        self.alpha = kept

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("alpha", np.array(self.alpha), PluginFieldType.FLOAT32)])


@breaks("R39", "phase BUILD: with the field memory overwritten")
class KeepsViewOutOfSight(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        plugin = _CallsForAlpha()
        data = field_collection.find("alpha").buffer
        plugin.read = lambda: float(data[0])
        return plugin


class _CallsForAlpha(Scale):
    read: Any

    def enqueue(self, input_desc: Any, output_desc: Any, *addresses: Any) -> Any:
        self.alpha = self.read()
        super().enqueue(input_desc, output_desc, *addresses)

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection(
            [PluginField("alpha", np.array([self.read()], np.float32), PluginFieldType.FLOAT32)]
        )


@breaks("R34", "'alpha' holds int64 [2, 3] and is declared INT32: it is read back as [2, 0]")
class SerializesLongAsInt(Scale):
    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("alpha", np.array([2, 3]), PluginFieldType.INT32)])
