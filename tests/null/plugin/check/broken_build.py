"""Plugins that break one rule about creation, declaration, formats or configuration."""

from __future__ import annotations

import itertools
from typing import Any

from dovetail.expr import DimensionOperation, DimsExprs
from dovetail.plugin.arrays import as_array
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.plugin.interfaces import PluginCapabilityType
from dovetail.types import DataType
from tests.null.plugin.check.faults import breaks
from tests.null.plugin.check.good import InPlace, Parts, Positive, Scale, ScaleCreator, _Runtime


@breaks("R01", "create_plugin returned None")
class CreatesNothing(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        self.plugin(float(field_collection[0].data[0]))  # the return is forgotten


@breaks("R01", "create_plugin returned the same object twice")
class CreatesOneObject(ScaleCreator):
    made: Any = None

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        if self.made is None:
            self.made = super().create_plugin(name, field_collection, phase)
        return self.made


@breaks("R02", "get_capability_interface(BUILD) of a BUILD object returned None")
class LacksBuild(Scale):
    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        return None if type == PluginCapabilityType.BUILD else self


class _NewRuntimeEachTime(Parts):
    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        return _Runtime(self, 0.5) if type == PluginCapabilityType.RUNTIME else self.parts[type]


@breaks("R02", "gave another object the second time")
class NewRuntimeEachTime(ScaleCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return _NewRuntimeEachTime()


@breaks("R02", "lacks required methods: set_tactic")
class LacksMethod(Scale):
    @property
    def set_tactic(self) -> Any:
        return None

    def copy(self) -> Any:
        return self


@breaks("R03", "plugin_version is 1, expected a str")
class NumberAsVersion(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.plugin_version: Any = 1


@breaks("R04", "creator.plugin_version is '2', plugin.plugin_version is '1'")
class OtherVersion(ScaleCreator):
    def __init__(self) -> None:
        super().__init__()
        self.plugin_version = "2"


@breaks("R05", "field_names[1].name is 'alpha', which is listed before")
class SameFieldTwice(ScaleCreator):
    def __init__(self) -> None:
        super().__init__()
        self.field_names = PluginFieldCollection([PluginField("alpha", None, PluginFieldType.FLOAT32)] * 2)


@breaks("R06", "num_outputs is 0, expected a positive integer")
class NoOutputs(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.num_outputs = 0


@breaks("R06", "num_outputs is 2 after configure_plugin")
class GrowingOutputs(Scale):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.num_outputs = 2


@breaks("R07", "get_output_data_types returned 2 entries, expected 1")
class TooManyTypes(Scale):
    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], input_types[0]]


@breaks("R08", "output 0, dimension 1 is 3, expected a dimension expression")
class PlainNumberAsDimension(Scale):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [[inputs[0][0], 3, *inputs[0][2:]]]


@breaks("R08", "which is -18 at")
class NegativeSize(Scale):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[0] = exprBuilder.operation(DimensionOperation.SUB, inputs[0][0], exprBuilder.constant(20))
        return [shape]


@breaks("R09", "at call 2")
class CountingShapes(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.calls = itertools.count()

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        extra = exprBuilder.constant(next(self.calls))
        shape[1] = exprBuilder.operation(DimensionOperation.SUM, shape[1], extra)
        return [shape]

    def copy(self) -> Any:
        twin = super().copy()
        twin.calls = itertools.count()
        return twin


@breaks("R09", "get_output_shapes changed its arguments")
class WritesItsArguments(Scale):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        inputs[0][0] = exprBuilder.constant(1)
        return [shape]


@breaks("R10", "exprBuilder.operation(SUM, size_tensor(output 1")
class ArithmeticOnSizeTensor(Positive):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape, size = super().get_output_shapes(inputs, shape_inputs, exprBuilder)
        shape[0] = exprBuilder.operation(DimensionOperation.SUM, shape[0], exprBuilder.constant(1))
        return [shape, size]


@breaks("R10", "output 1 is a size tensor of type FLOAT, expected INT32 or INT64")
class FloatSizeTensor(Positive):
    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], DataType.FLOAT]


@breaks("R10", "output 1 is a size tensor and has 1 dimensions, expected none")
class OneDimensionalSizeTensor(Positive):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape, _ = super().get_output_shapes(inputs, shape_inputs, exprBuilder)
        return [shape, DimsExprs([exprBuilder.constant(1)])]


@breaks("R11", "answered yes first and no later")
class AnswersOnce(Scale):
    asked: set[Any]

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.asked = set()

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        question = repr(in_out[: pos + 1])
        is_new = question not in self.asked
        self.asked.add(question)
        return is_new and super().supports_format_combination(pos, in_out, num_inputs)

    def copy(self) -> Any:
        twin = super().copy()
        twin.asked = set(self.asked)
        return twin


@breaks("R11", "supports_format_combination changed the object: self.format")
class RemembersFormat(Scale):
    format: Any = None

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        self.format = in_out[pos].desc.format
        return super().supports_format_combination(pos, in_out, num_inputs)


@breaks("R12", "pos 0 FLOAT LINEAR: read in_out[1].desc, valid are positions 0 to 0")
class LooksAhead(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        output_type = in_out[num_inputs].desc.type
        return output_type in (None, in_out[0].desc.type) and super().supports_format_combination(
            pos, in_out, num_inputs
        )


@breaks("R12", "pos 0 FLOAT LINEAR: read in_out[1].desc")
class LooksAheadAndRaises(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return len(in_out[num_inputs].desc.dims) == 4 and super().supports_format_combination(pos, in_out, num_inputs)


@breaks("R13", "pos 1 FLOAT CHW32 after FLOAT LINEAR: returned None, expected a bool")
class ForgetsToAnswer(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        if in_out[pos].desc.format == 0:
            return super().supports_format_combination(pos, in_out, num_inputs)
        return None


@breaks("R14", "pos 0 FLOAT: LINEAR no, CHW32 no, HWC no")
class AcceptsNothing(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return False


@breaks("R14", "it is with inputs of type HALF")
class AcceptsHalfOnly(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].desc.type == DataType.HALF


@breaks("R15", "get_output_data_types declares INT32, supports_format_combination accepts output 0 FLOAT")
class DeclaresOtherType(Scale):
    def get_output_data_types(self, input_types: Any) -> Any:
        return [DataType.INT32]


@breaks("R16", "format_combination_limit is 0, expected a positive int")
class NoCombinations(Scale):
    format_combination_limit = 0


@breaks("R16", "metadata_string is 0.5, expected a str or None")
class NumberAsMetadata(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.metadata_string: Any = alpha


@breaks("R17", "get_aliased_input(0) returned 1, expected -1 to 0")
class AliasesNothing(Scale):
    def get_aliased_input(self, output_index: int) -> int:
        return 1


@breaks("R17", "does not fit in input 0", shapes=["2x3x8x8", "1x3x8x8"])
class AliasTooLarge(InPlace):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[0] = exprBuilder.operation(DimensionOperation.MAX, shape[0], exprBuilder.constant(2))
        return [shape]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        y[...] = 0
        y[: len(x)] = x


@breaks("R18", "configure_plugin raised ValueError: no profile")
class RaisesWhenConfigured(Scale):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        raise ValueError("no profile")


@breaks("R19", "configure_plugin returned 3")
class ReturnsStatus(Scale):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        return 3


@breaks("R20", "get_valid_tactics returned [1, 1]: a number is there twice")
class SameTacticTwice(Scale):
    def get_valid_tactics(self) -> Any:
        return [1, 1]


@breaks("R20", "0 is not a positive int")
class ZeroTactic(Scale):
    def get_valid_tactics(self) -> Any:
        return [0, 1]


@breaks("R21", "get_workspace_size returned -1, expected an int of at least 0")
class NegativeWorkspace(Scale):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return -1


@breaks("R22", "timing_cache_id is 'tactic 2' after configure_plugin and set_tactic")
class TacticInCacheId(Scale):
    def set_tactic(self, tactic: int) -> Any:
        super().set_tactic(tactic)
        self.timing_cache_id = f"tactic {tactic}"


@breaks("R23", "on_shape_change changed its argument 1")
class ChangesDescriptor(Scale):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        in_[0].dims[0] = 1


@breaks("R23", "supports_format_combination changed in_out")
class ChangesProposal(Scale):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        answer = super().supports_format_combination(pos, in_out, num_inputs)
        in_out[0].desc.scale = 1.0
        return answer


@breaks("R67", "with the fields in reverse order", fields={"alpha": 0.5, "shift": 2.0})
class ReadsFieldsByPlace(ScaleCreator):
    def __init__(self) -> None:
        super().__init__()
        names = ("alpha", "shift")
        self.field_names = PluginFieldCollection([PluginField(name, None, PluginFieldType.FLOAT32) for name in names])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return self.plugin(float(field_collection[0].data[0]))


@breaks("R69", "with another layer beside it, whose fields are others: output 0", fields={})
class SharesAlpha(Scale):
    shared = 1.0

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        SharesAlpha.shared = alpha

    def enqueue(self, *arguments: Any) -> Any:
        kept, self.alpha = self.alpha, SharesAlpha.shared
        super().enqueue(*arguments)
        self.alpha = kept
