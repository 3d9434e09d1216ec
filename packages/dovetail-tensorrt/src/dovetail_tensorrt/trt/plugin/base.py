"""What JIT and ahead-of-time plugins share: asking the author's functions about types, shapes, formats and tactics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dovetail import (
    DataType,
    DimsExprs,
    DynamicPluginTensorDesc,
    IExprBuilder,
    InterfaceInfo,
    IPluginV3,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    PluginCapabilityType,
    PluginTensorDesc,
    TensorFormat,
)
from dovetail_tensorrt.trt.plugin.combinations import AutoTuneCombination, Layout
from dovetail_tensorrt.trt.plugin.definitions import Definition
from dovetail_tensorrt.trt.plugin.descriptors import Shape, SizeTensorDesc, TensorDesc
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import ShapeExpr, ShapeExprs

__all__ = ["DecoratedPlugin", "Offers", "ask_outputs", "describe_inputs"]

VERSION: Final = "1"


def describe_inputs(types: Sequence[DataType], shapes: Sequence[Iterable[Any]]) -> list[TensorDesc]:
    """Descriptors of inputs that nobody can change."""
    return [
        TensorDesc(ShapeExprs.from_tuple(shape), dtype).freeze() for dtype, shape in zip(types, shapes, strict=True)
    ]


def ask_outputs(
    definition: Definition, inputs: Sequence[TensorDesc], attributes: Mapping[str, Any]
) -> list[TensorDesc]:
    """What the register function says of the outputs, checked."""
    values = [attributes[name] for name in definition.signature.attributes]
    returned = definition.signature.function(*inputs, *values)
    outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
    if len(outputs) != definition.signature.num_outputs or not all(isinstance(each, TensorDesc) for each in outputs):
        raise DecoratorError(
            "the register function returned something else than its annotation says",
            where=definition.where,
            expected=f"{definition.signature.num_outputs} TensorDesc",
            got=[type(each).__name__ for each in outputs],
        )
    for output in outputs:
        _check_sizes(definition, output, outputs)
    return outputs


def _check_sizes(definition: Definition, output: TensorDesc, outputs: Sequence[TensorDesc]) -> None:
    """Every size tensor that a dimension names is one of the outputs."""
    for expr in output.shape_expr:
        is_lost = expr.is_size_tensor and not any(expr.size_tensor_desc is each for each in outputs)
        if is_lost:
            raise DecoratorError(
                "a size tensor is used as a dimension and is not among the outputs",
                where=definition.where,
                fix="return it too: the plugin writes the size there",
            )


def find_aliases(inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> tuple[int, ...]:
    """For each output the input it shares memory with, or -1."""
    found = []
    for output in outputs:
        source = output.get_aliased()
        found.append(next((index for index, each in enumerate(inputs) if each is source), -1))
    return tuple(found)


@dataclass(frozen=True)
class Offers:
    """What ``autotune`` offers: each row of types and formats, with its tactics."""

    rows: Mapping[tuple[Layout, ...], tuple[int, ...]]

    @staticmethod
    def collect(offered: Sequence[AutoTuneCombination], count: int, where: str) -> Offers:
        """The rows of all combinations; where two have the same row, it gets the tactics of both."""
        rows: dict[tuple[Layout, ...], dict[int, None]] = {}
        for each in offered:
            if not isinstance(each, AutoTuneCombination):
                raise DecoratorError(
                    "autotune returns a list of AutoTuneCombination", where=where, got=type(each).__name__
                )
            for row in each.expand(count):
                rows.setdefault(row, {}).update(dict.fromkeys(each.get_tactics()))
        return Offers({row: tuple(tactics) for row, tactics in rows.items()})


class DecoratedPlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuildV2):
    """The part of a plugin that is asked while a plan is built."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3QUICK_BUILD", 1, 0)
    takes_ranks = True
    preferred_memory = "device"

    def __init__(self, definition: Definition, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self.definition = definition
        self.attributes = dict(attributes)
        self.plugin_name, self.plugin_namespace, self.plugin_version = definition.name, definition.namespace, VERSION
        self.num_outputs = definition.signature.num_outputs
        self.tactic = 0
        self._aliases: tuple[int, ...] = (-1,) * self.num_outputs
        self._offers: Offers | None = None
        self._row: tuple[Layout, ...] = ()

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:  # noqa: A002 - the contract's name
        """This object has them all."""
        return self

    def clone(self) -> Any:
        """A twin with the same attributes and tactic."""
        twin = object.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        return twin

    # types and shapes

    def get_output_data_types(
        self, input_types: Sequence[DataType], ranks: Sequence[int | None] = ()
    ) -> list[DataType]:
        """The types that the register function gives, over shapes of which only the ranks are known."""
        self._check_count(len(input_types))
        if len(ranks) != len(input_types) or None in ranks:
            raise DecoratorError(
                "the rank of an input is not known", where=self.definition.where, fix="give the tensor a shape"
            )
        fakes = [[ShapeExpr()] * (rank or 0) for rank in ranks]
        inputs = describe_inputs(input_types, fakes)
        outputs = ask_outputs(self.definition, inputs, self.attributes)
        self._aliases = find_aliases(inputs, outputs)
        self._input_types = tuple(input_types)
        return [output.dtype for output in outputs]

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803 - the contract's name
    ) -> list[DimsExprs]:
        """The shapes that the register function gives."""
        self._check_count(len(inputs))
        types = getattr(self, "_input_types", None) or (DataType.FLOAT,) * len(inputs)
        outputs = ask_outputs(self.definition, describe_inputs(types, inputs), self.attributes)
        return [_lower_shape(output, outputs, exprBuilder) for output in outputs]

    def _check_count(self, count: int) -> None:
        wanted = self.definition.signature.inputs
        if count != len(wanted):
            raise DecoratorError(
                "another number of inputs", where=self.definition.where, expected=", ".join(wanted), got=count
            )

    def get_aliased_input(self, output_index: int) -> int:
        """The input that an output shares memory with, or -1."""
        return self._aliases[output_index]

    # formats and tactics

    def get_supported_format_combinations(
        self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int
    ) -> list[PluginTensorDesc]:
        """All that ``autotune`` offers; without it the network's own types, row by row."""
        self._offers = self._ask_offers(in_out, num_inputs)
        return [PluginTensorDesc((), dtype, form) for row in self._offers.rows for dtype, form in row]

    def _ask_offers(self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> Offers:
        callback = self.definition.autotune
        if callback is None:
            return Offers({tuple((each.desc.type, TensorFormat.LINEAR) for each in in_out): ()})
        inputs, outputs = self.describe(in_out[:num_inputs], in_out[num_inputs:])
        values = self.definition.select(callback, self.attributes)
        offered = callback.function(*inputs, *values, tuple(outputs))
        return Offers.collect(list(offered), len(in_out), self.definition.where)

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether what was listed last has a row that begins like this; row by row where nothing was listed."""
        given = tuple((each.desc.type, each.desc.format) for each in in_out[: pos + 1])
        if self._offers is None:
            return all(form is TensorFormat.LINEAR for _, form in given)
        return any(row[: pos + 1] == given for row in self._offers.rows)

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> None:
        """Take the types and formats that the next questions are about."""
        self._row = tuple((each.desc.type, each.desc.format) for each in (*in_, *out))
        if self._offers is None:
            self._offers = self._ask_offers([*in_, *out], len(in_))

    def get_valid_tactics(self) -> list[int]:
        """The tactics of the combination that was configured last."""
        return [] if self._offers is None else list(self._offers.rows.get(self._row, ()))

    def set_tactic(self, tactic: int) -> None:
        """Use this tactic from now on."""
        self.tactic = int(tactic)

    # descriptors of the build

    def describe(
        self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]
    ) -> tuple[list[TensorDesc], list[TensorDesc]]:
        """Descriptors that know sizes, types and formats, for ``autotune`` and ``aot_impl``."""
        exprs = [self._input_exprs(index, desc) for index, desc in enumerate(in_)]
        inputs = describe_inputs([each.desc.type for each in in_], exprs)
        outputs = ask_outputs(self.definition, inputs, self.attributes)
        for desc, given in zip((*inputs, *outputs), (*in_, *out), strict=True):
            desc._shape, desc._format, desc._scale = Shape(given), given.desc.format, given.desc.scale
            desc._dtype = given.desc.type
        return inputs, [output.freeze() for output in outputs]

    def _input_exprs(self, index: int, desc: DynamicPluginTensorDesc) -> list[ShapeExpr]:
        """The dimensions of an input: its sizes where they are fixed, fake expressions else."""
        return [ShapeExpr(size if size >= 0 else None) for size in desc.desc.dims]


def _lower_shape(output: TensorDesc, outputs: Sequence[TensorDesc], builder: IExprBuilder) -> DimsExprs:
    if output.is_size_tensor:
        return DimsExprs(0)
    dims = DimsExprs(len(output.shape_expr))
    for axis, expr in enumerate(output.shape_expr):
        dims[axis] = _lower_size(expr.size_tensor_desc, outputs, builder) if expr.is_size_tensor else expr.expr
    return dims


def _lower_size(desc: SizeTensorDesc, outputs: Sequence[TensorDesc], builder: IExprBuilder) -> Any:
    index = next(index for index, each in enumerate(outputs) if each is desc)
    return builder.declare_size_tensor(index, desc.opt.expr, desc.upper_bound.expr)
