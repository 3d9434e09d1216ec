"""The checker finds inputs that a plugin accepts, uses the ones it is given, and says which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.expr import DimsExprs
from dovetail.plugin.arrays import as_array, write_scalar
from dovetail.plugin.check import check_creator
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.types import DataType, TensorRTPhase
from tests.null.plugin.check.good import Centred, Positive, Scale, ScaleCreator, creator_of


class Copy(Scale):
    """y = x, for one type."""

    kind = DataType.FLOAT

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return (desc.type, desc.format) == (self.kind, in_out[0].desc.format)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])


@pytest.mark.parametrize("kind", DataType, ids=lambda kind: kind.name)
def test_every_type_can_be_checked(kind: DataType) -> None:
    types = [kind] if kind in (DataType.INT4, DataType.FP4, DataType.E8M0) else None
    report = check_creator(creator_of(type("CopyOne", (Copy,), {"kind": kind})), types=types)
    assert report.ok, report.render()
    assert report.notes[0].startswith(f"inputs chosen by the checker: {kind.name} (2, 3, 8, 8)")


class Add(Copy):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        a, b = (as_array(address, desc) for address, desc in zip(inputs, input_desc, strict=True))
        np.add(a, b, out=as_array(outputs[0], output_desc[0]))


def test_the_number_of_inputs_is_found() -> None:
    report = check_creator(creator_of(Add))
    assert report.ok, report.render()
    assert "FLOAT (2, 3, 8, 8), FLOAT (2, 3, 8, 8)" in report.notes[0]


class Gather(Scale):
    """Rows of x by index."""

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        wanted = DataType.INT64 if pos == 1 else DataType.FLOAT
        return num_inputs == 2 and (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, 0)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([*inputs[1], *inputs[0][1:]])]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, index = (as_array(address, desc) for address, desc in zip(inputs, input_desc, strict=True))
        as_array(outputs[0], output_desc[0])[...] = x[index]


def test_mixed_types_are_found_and_integers_are_valid_indices() -> None:
    report = check_creator(creator_of(Gather))
    assert report.ok, report.render()
    assert "FLOAT (2, 3, 8, 8), INT64 (2, 3, 8, 8)" in report.notes[0]


class Constant(Scale):
    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        assert not input_types
        return [DataType.FLOAT]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([exprBuilder.constant(5)])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return True

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        as_array(outputs[0], output_desc[0])[...] = self.alpha


def test_a_plugin_without_inputs() -> None:
    report = check_creator(creator_of(Constant))
    assert report.ok, report.render()
    assert report.notes[0].startswith("inputs chosen by the checker: no inputs")


class Repeat(Positive):
    """The positive elements, as many times as the shape input says."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape, size = super().get_output_shapes(inputs, shape_inputs, exprBuilder)
        return [DimsExprs([shape_inputs[0][0], *shape]), size]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        found = x[x > 0]
        as_array(outputs[0], output_desc[0], shape=(output_desc[0].dims[0], found.size))[...] = found
        write_scalar(outputs[1], output_desc[1].type, found.size)


def test_shape_inputs_are_found_or_given() -> None:
    guessed = check_creator(creator_of(Repeat))
    assert guessed.ok, guessed.render()
    assert "and shape inputs (2,)" in guessed.notes[0]
    given = check_creator(creator_of(Repeat), shapes=["4x4"], shape_inputs=[[3]], types=["FLOAT"])
    assert given.ok, given.render()
    assert "inputs chosen" not in " ".join(given.notes)


class Static(Centred):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        if not all(dim.is_constant() for dim in inputs[0]):
            raise ValueError("every dimension must be known when the plan is built")
        return super().get_output_shapes(inputs, shape_inputs, exprBuilder)


def test_a_plugin_for_static_shapes() -> None:
    report = check_creator(creator_of(Static))
    assert report.ok, report.render()
    assert "every dimension constant" in report.notes[0]
    assert report.outcome("R48").message.startswith("there is one case only")


class Picky(Scale):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        if len(inputs[0]) != 6:
            raise ValueError(f"rank 6 is needed, not {len(inputs[0])}")
        return super().get_output_shapes(inputs, shape_inputs, exprBuilder)


def test_what_is_said_when_nothing_is_accepted() -> None:
    report = check_creator(creator_of(Picky))
    assert report.failed_ids == {"R18"}
    outcome = report.outcome("R18")
    assert "get_output_shapes raised ValueError: rank 6 is needed" in outcome.message
    assert outcome.message.endswith("which the checker guessed")
    assert "--shapes" in outcome.fix
    assert any(note.startswith("no candidate ran to the end") for note in report.notes)
    given = check_creator(creator_of(Picky), shapes=["1x2x1x2x1x2"])
    assert given.ok, given.render()


class NeedsAlpha(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        found = field_collection.find("alpha")
        if found is None:
            raise ValueError("alpha is needed")
        return self.plugin(float(found.data[0]))


def test_fields_that_are_needed_are_guessed() -> None:
    report = check_creator(NeedsAlpha())
    assert report.ok, report.render()
    assert report.notes[0] == "create_plugin needs fields that were not given; used alpha=[1.0]"
    assert report.outcome("R34").message == "alpha=[1.625]"


class NeedsLargePair(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        rows, columns = field_collection.find("alpha").data
        plugin = _LargePair(float(rows))
        plugin.columns = float(columns)
        return plugin


class _LargePair(Scale):
    columns = 0.0

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        if self.alpha < 8 or self.columns < 8:
            raise ValueError("smaller than the input")

    def get_fields_to_serialize(self) -> Any:
        pair = np.array([self.alpha, self.columns], np.float32)
        return PluginFieldCollection([PluginField("alpha", pair, PluginFieldType.FLOAT32)])


def test_guessed_fields_are_changed_until_the_plugin_runs() -> None:
    report = check_creator(NeedsLargePair())
    assert report.ok, report.render()
    assert report.notes[0].endswith("used alpha=[32.0, 32.0]")


@pytest.mark.parametrize("value", [0.25, "0.25", [0.25], np.float64(0.25)])
def test_field_values_are_read_as_the_declared_type(value: Any) -> None:
    report = check_creator(creator_of(Scale), fields={"alpha": value})
    assert report.ok, report.render()
    assert report.outcome("R34").message == "alpha=[0.25]"


def test_fields_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'alpha'"):
        check_creator(creator_of(Scale), fields={"alfa": 1})
    with pytest.raises(UsageError, match="field 'alpha' cannot be read; expected FLOAT32 numbers"):
        check_creator(creator_of(Scale), fields={"alpha": "much"})
    for value in ("3.5", "99999999999999", "1e300", 2**31, [0.5]):
        with pytest.raises(UsageError, match="field 'axes' of type INT32 cannot hold"):
            check_creator(Texts(), fields={"axes": value})


class Texts(ScaleCreator):
    """Takes one of each kind of field."""

    def __init__(self) -> None:
        super().__init__()
        declared = {"mode": PluginFieldType.CHAR, "axes": PluginFieldType.INT32, "blob": PluginFieldType.UNKNOWN}
        self.field_names = PluginFieldCollection([PluginField(name, None, kind) for name, kind in declared.items()])

    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        plugin = _Texts()
        plugin.values = {field.name: (field.data.tobytes(), field.type) for field in field_collection}
        return plugin


class _Texts(Scale):
    values: dict[str, Any]

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField(name, raw, kind) for name, (raw, kind) in self.values.items()])


def test_texts_lists_and_bytes_become_fields() -> None:
    report = check_creator(Texts(), fields={"mode": "same", "axes": "1,2", "blob": b"\x01\x02"})
    assert report.ok, report.render()
    assert "axes=[1, 2]" in report.outcome("R34").message
    assert "mode='same'" in report.outcome("R34").message


class KnowsScale(Scale):
    """Learns what it needs in configure_plugin, as quantized plugins do, and serializes it."""

    gain: float | None = None

    def __init__(self, alpha: float = 1.0, gain: float | None = None) -> None:
        super().__init__(alpha)
        self.gain = gain

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (DataType.INT8, 0)

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.gain = in_[0].desc.scale / out[0].desc.scale

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        assert self.gain is not None
        assert self.tactic

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = (x * self.gain).round()

    def get_fields_to_serialize(self) -> Any:
        gain = np.array([self.gain], np.float32)  # raises nothing before configuration, but holds NaN
        return PluginFieldCollection([PluginField("gain", gain, PluginFieldType.FLOAT32)])


class KnowsScaleCreator(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        found = field_collection.find("gain")
        return KnowsScale(1.0, None if found is None else float(found.data[0]))


def test_a_plugin_that_serializes_what_it_learned_when_configured() -> None:
    report = check_creator(KnowsScaleCreator())
    assert report.ok, report.render()
    assert report.outcome("R34").message == "gain=[1.0]"


class UsesContext(Scale):
    """Takes its buffer from the allocator of the context it is attached to."""

    allocator: Any = None
    address = 0

    def attach_to_context(self, resource_context: Any) -> Any:
        twin = self.copy()
        twin.allocator = resource_context.gpu_allocator
        return twin

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        if self.address:
            self.allocator.deallocate(self.address)
        self.address = self.allocator.allocate(64, 64, 0)

    def destroy(self) -> None:
        if self.address:
            self.allocator.deallocate(self.address)
            self.address = 0


def test_a_plugin_that_uses_its_context() -> None:
    report = check_creator(creator_of(UsesContext), strict=True)
    assert report.ok, report.render()
    assert report.outcome("R33").message.endswith("uses watched")
