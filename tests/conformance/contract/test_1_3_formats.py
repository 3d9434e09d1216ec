"""Rule 1.3: how types and formats are proposed, what a proposal holds, and what happens when nothing is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.formats import pack
from dovetail.plugin import as_array
from tests.conformance.contract.authors import LINEAR, Messages, Plus, PlusCreator, build, details, load, one_plugin

F = trt.TensorFormat
ORDERS = {
    trt.float32: [F.LINEAR, F.CHW32, F.HWC],
    trt.float16: [F.LINEAR, F.CHW2, F.HWC8, F.CHW4, F.HWC16, F.CHW16, F.CHW32],
    trt.int8: [F.LINEAR, F.CHW4, F.CHW32, F.HWC16],
    trt.bfloat16: [F.LINEAR, F.CHW2, F.HWC8],
    trt.fp8: [F.LINEAR, F.HWC16],
    trt.int32: [F.LINEAR],
    trt.int64: [F.LINEAR],
    trt.bool: [F.LINEAR],
    trt.uint8: [F.LINEAR, F.HWC],
}
"""For rank 4: first what is seen everywhere, in that order, then whatever else the type allows."""
VOLUMES = {
    trt.float32: [F.LINEAR, F.DHWC],
    trt.float16: [F.LINEAR, F.DHWC8, F.CDHW32],
    trt.int8: [F.LINEAR, F.CDHW32],
    trt.bfloat16: [F.LINEAR, F.DHWC8],
    trt.uint8: [F.LINEAR],
}


class Anything(Plus):
    """Accepts whatever is proposed, and computes on memory as it lies."""

    formats = tuple(trt.TensorFormat)

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])


@pytest.mark.parametrize("dtype", list(ORDERS), ids=lambda d: d.name)
def test_the_order_of_proposals(dtype: Any) -> None:
    trace: list[Any] = []
    build(one_plugin(Anything(1.0, trace), (1, 3, 4, 4), dtype))
    asked = details(trace, "supports_format_combination")
    first = list(dict.fromkeys(fmt for pos, _, fmt, _ in asked if pos == 0))
    assert first == ORDERS[dtype]
    assert {t for _, t, _, _ in asked} == {dtype}  # strongly typed: only the network's types
    assert {n for _, _, _, n in asked} == {1}


@pytest.mark.parametrize("dtype", list(VOLUMES), ids=lambda d: d.name)
def test_tensors_with_depth_have_a_list_of_their_own(dtype: Any) -> None:
    trace: list[Any] = []
    build(one_plugin(Anything(1.0, trace), (1, 3, 2, 4, 4), dtype))
    asked = details(trace, "supports_format_combination")
    assert list(dict.fromkeys(fmt for pos, _, fmt, _ in asked if pos == 0)) == VOLUMES[dtype]


def test_low_ranks_are_linear_only() -> None:
    trace: list[Any] = []
    build(one_plugin(Anything(1.0, trace), (3, 4), trt.float16))
    assert {fmt for _, _, fmt, _ in details(trace, "supports_format_combination")} == {F.LINEAR}


def test_the_walk_is_depth_first() -> None:
    trace: list[Any] = []
    build(one_plugin(Anything(1.0, trace), (1, 3, 4, 4)))
    asked = [(pos, fmt) for pos, _, fmt, _ in details(trace, "supports_format_combination")]
    order = ORDERS[trt.float32]
    one_pass = [asked for first in order for asked in ((0, first), *((1, second) for second in order))]
    assert asked == one_pass * 2  # enumerated twice


def test_positions_above_are_invalid_and_below_are_what_was_accepted() -> None:
    class Looking(Plus):
        def get_output_data_types(self, input_types: Any) -> Any:
            return [trt.float16]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            assert len(in_out) == 3
            assert num_inputs == 2
            for above in in_out[pos + 1 :]:
                assert above.desc.type not in list(trt.DataType)
                assert above.desc.format not in list(trt.TensorFormat)
                with pytest.raises(ValueError, match="invalid"):
                    len(above.desc.dims)
            for below in in_out[:pos]:
                assert below.desc.type == trt.float32
                assert below.desc.format == LINEAR
            wanted = trt.float16 if pos == 2 else trt.float32
            assert in_out[pos].desc.type == wanted
            self.note("good", pos)
            return bool(in_out[pos].desc.format == LINEAR)

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            as_array(outputs[0], output_desc[0])[...] = 0

    trace: list[Any] = []

    def fill(network: Any) -> Any:
        a, b = (network.add_input(n, trt.float32, (1, 2, 4, 4)) for n in "ab")
        return network.add_plugin_v3([a, b], [], Looking(1.0, trace)).get_output(0)

    build(fill)
    assert {pos for _, m, pos in trace if m == "good"} == {0, 1, 2}
    # Of what is proposed only LINEAR is accepted and goes deeper.
    single, half = len(ORDERS[trt.float32]), len(ORDERS[trt.float16])
    assert len(details(trace, "good")) == 2 * (single + single + half)


def test_proposals_carry_dims_and_bounds() -> None:
    seen: set[Any] = set()

    class Reading(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            d = in_out[pos]
            seen.add((pos, tuple(d.desc.dims), tuple(d.min), tuple(d.opt), tuple(d.max), d.desc.scale))
            return super().supports_format_combination(pos, in_out, num_inputs)

    build(one_plugin(Reading(), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (8, 3))}])
    assert seen == {(pos, (-1, 3), (1, 3), (2, 3), (8, 3), -1.0) for pos in (0, 1)}


def test_the_default_limit_is_a_hundred() -> None:
    assert Plus().format_combination_limit == 100
    assert trt.IPluginV3OneBuild.DEFAULT_FORMAT_COMBINATION_LIMIT == 100


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_walk_stops_at_the_limit(limit: int) -> None:
    trace: list[Any] = []
    plugin = Anything(1.0, trace)
    plugin.format_combination_limit = limit
    build(one_plugin(plugin, (1, 3, 4, 4)))
    configured = {(d[0][0].desc.format, d[1][0].desc.format) for d in details(trace, "configure_plugin")}
    assert configured == {(f, f) for f in ORDERS[trt.float32][:limit]}


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "3"])
def test_a_limit_that_allows_nothing_is_refused(limit: Any) -> None:
    plugin = Anything(1.0)
    plugin.format_combination_limit = limit
    with pytest.raises(trt.PluginError, match="format_combination_limit must be a positive integer"):
        build(one_plugin(plugin, (1, 3, 4, 4)))


def test_the_limit_is_asked_after_the_first_complete_combination() -> None:
    class Late(Anything):
        @property
        def format_combination_limit(self) -> int:  # type: ignore[override]
            self.note("limit")
            return 1

        @format_combination_limit.setter
        def format_combination_limit(self, value: int) -> None:
            raise AssertionError

    trace: list[Any] = []
    build(one_plugin(Late(1.0, trace), (1, 3, 4, 4)))
    names = [m for _, m, _ in trace if m in ("limit", "supports_format_combination")]
    assert names[:3] == ["supports_format_combination", "supports_format_combination", "limit"]


def test_nothing_accepted_shows_every_answer() -> None:
    class Picky(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            if pos == 1:
                raise KeyError("what is this")
            return bool(in_out[pos].desc.format == LINEAR)

    with pytest.raises(
        trt.BuildError, match="could not find any supported formats consistent with input/output data types"
    ) as error:
        build(one_plugin(Picky(), (1, 3, 4, 4)))
    text = str(error.value)
    assert "Plus" in text
    for row in ("LINEAR   accepted", "CHW32    refused", "KeyError", "output 0"):
        assert row in text


def test_an_exception_is_a_refusal_that_can_be_seen() -> None:
    class Nervous(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            if in_out[pos].desc.format != LINEAR:
                raise TypeError("only LINEAR here")
            return True

    logger = Messages()
    engine = load(build(one_plugin(Nervous(), (1, 3, 4, 4)), logger=logger), PlusCreator(Nervous))
    assert "only LINEAR here" in logger.text()
    assert "supports_format_combination" in logger.text()
    assert engine(np.zeros((1, 3, 4, 4), np.float32)).max() == 1


@pytest.mark.parametrize("answer", [1, np.bool_(True), "yes"])
def test_answers_count_by_their_truth(answer: Any) -> None:
    class Odd(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
            return answer if in_out[pos].desc.format == LINEAR else None

    build(one_plugin(Odd(), (1, 3, 4, 4)))


def test_an_impure_plugin_is_told() -> None:
    class Fickle(Anything):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            count = len(details(self.trace, "supports_format_combination"))
            super().supports_format_combination(pos, in_out, num_inputs)
            return in_out[pos].desc.format == (F.LINEAR if count < 6 else F.HWC)

    logger = Messages()
    build(one_plugin(Fickle(), (1, 3, 4, 4)), logger=logger)
    assert "different answers" in logger.text()


@pytest.mark.parametrize(
    ("dtype", "fmt"),
    [
        (dtype, fmt)
        for dtype in (trt.float32, trt.float16, trt.bfloat16, trt.fp8, trt.int8)
        for fmt in ORDERS[dtype]
        if fmt != F.DLA_HWC4
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 3])
def test_memory_lies_as_the_chosen_format_says(dtype: Any, fmt: Any, rows: int) -> None:
    seen: list[Any] = []

    class Packed(Anything):
        formats = (fmt,)

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            assert input_desc[0].format == output_desc[0].format == fmt
            assert tuple(input_desc[0].dims)[1:] == (5, 2, 3)
            seen.append(as_array(inputs[0], input_desc[0]).copy())
            super().compute(input_desc, output_desc, inputs, outputs)

    x = np.random.default_rng(7).integers(-8, 8, (rows, 5, 2, 3)).astype(dtype.numpy)
    plan = build(
        one_plugin(Packed(), (-1, 5, 2, 3), dtype),
        profiles=[{"x": ((1, 5, 2, 3), (2, 5, 2, 3), (4, 5, 2, 3))}],
    )
    engine = load(plan, PlusCreator(Packed))
    np.testing.assert_array_equal(engine(x), x)
    np.testing.assert_array_equal(seen[-1], pack(x, fmt))


def test_input_and_output_may_have_different_formats() -> None:
    class Transposing(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return bool(in_out[pos].desc.format == (F.HWC if pos == 0 else F.LINEAR))

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
            y[...] = np.moveaxis(x, -1, -3)

    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    engine = load(build(one_plugin(Transposing(), x.shape)), PlusCreator(Transposing))
    np.testing.assert_array_equal(engine(x), x)


@pytest.mark.parametrize("dtype", [trt.bool, trt.uint8], ids=lambda d: d.name)
def test_bool_and_uint8_are_accepted_beyond_the_rule(dtype: Any) -> None:
    x = np.array([[1, 0, 1]]).astype(dtype.numpy)
    engine = load(build(one_plugin(Anything(), x.shape, dtype)), PlusCreator(Anything))
    y = engine(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_a_weakly_typed_network_proposes_types_by_flag() -> None:
    trace: list[Any] = []

    class Typed(Anything):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            same = in_out[pos].desc.type == in_out[0].desc.type
            return super().supports_format_combination(pos, in_out, num_inputs) and same

    builder = trt.Builder(Messages())
    network = builder.create_network(strongly_typed=False)
    [y] = one_plugin(Typed(1.0, trace), (2, 3))(network)
    network.mark_output(y)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    builder.build_serialized_network(network, config)
    asked = [t for pos, t, _, _ in details(trace, "supports_format_combination") if pos == 0]
    assert list(dict.fromkeys(asked)) == [trt.float32, trt.float16]
