"""Shapes that are known, nodes that cancel, and what must stay because it is not known or somebody asked for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.passes.base import run_passes
from dovetail.passes.dead_code import DeadCode
from dovetail.passes.shape_simplification import ShapeSimplification
from tests.support.pass_graphs import check_numbers, make, ops

INTS: dict[str, Any] = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "minus": np.array([-1]),
    "end": np.array([np.iinfo(np.int64).max]),
    "scalar": np.array(1),
    "ones": np.array([1, 1]),
    "four": np.array([4]),
    "sixteen": np.array([16]),
    "pair": np.array([0, 2]),
}


def simplify(text: str, sizes: dict[str, int] | None = None, **weights: Any) -> tuple[ir.Model, list[str]]:
    model = make(text, **(INTS | weights))
    changed = check_numbers(model, [ShapeSimplification(), DeadCode()], tolerance=None, sizes=sizes)
    return model, [line for line in changed if line.startswith("shape_simplification")]


def only_shape(model: ir.Model, op: str) -> list[int]:
    node = next(node for node in model.graph if node.op_type == op)
    shape = node.inputs[1]
    assert shape is not None
    assert shape.const_value is not None
    numbers: list[int] = shape.const_value.numpy().tolist()
    return numbers


class TestFolding:
    def test_a_known_shape(self) -> None:
        model, changed = simplify("g (float[2, 3] x) => (int64[2] y) { a = Shape(x) y = Neg(a) }")
        assert ops(model) == ["Neg"]
        assert changed == ["shape_simplification: folded 'Shape' (Shape) to [2, 3]"]

    @pytest.mark.parametrize(
        "body",
        [
            "s = Shape(x) a = Gather(s, one)",
            "s = Shape(x) a = Slice(s, one, two)",
            "a = Shape<start = 1, end = 2>(x)",
            "s = Shape<start = -2>(x) a = Slice(s, zero, one, zero)",
            "s = Shape(x) k = Gather<axis = 0>(s, scalar) a = Unsqueeze(k, zero)",
            "s = Shape(x) k = Gather(s, one) c = Cast<to = 6>(k) a = Cast<to = 7>(c)",
            "s = Shape<start = 1, end = 2>(x) t = Mul(s, two) a = Sub(t, four)",
        ],
    )
    def test_one_known_size_of_an_open_shape(self, body: str) -> None:
        model, _ = simplify(f"g (float[n, 4, m] x) => (int64[1] y) {{ {body} y = Neg(a) }}")
        assert ops(model) == ["Neg"]

    def test_an_open_size_stays(self) -> None:
        model, _ = simplify("g (float[n, 4] x) => (int64[1] y) { s = Shape(x) a = Gather(s, zero) y = Neg(a) }")
        assert ops(model) == ["Shape", "Gather", "Neg"]

    def test_sizes_that_were_read_before(self) -> None:
        body = "a = Shape<start = 0, end = 1>(x) t = Transpose(x) s = Shape(t) b = Gather(s, one) y = Add(a, b)"
        model, changed = simplify(f"g (float[n, 4] x) => (int64[1] y) {{ {body} }}")
        assert ops(model) == ["Shape", "Add"]
        assert len(changed) == 1

    def test_contents_to_keep(self) -> None:
        model = make(
            "g (float[2, 3] x) => (int64[1] y) { s = Shape(x) a = Gather(s, one) b = Add(a, w) y = Neg(b) }",
            **INTS,
            w=np.array([5]),
        )
        run_passes(model, [ShapeSimplification(keep=frozenset({"w"})), DeadCode()], check=True)
        assert ops(model) == ["Add", "Neg"]

    def test_an_output_stays(self) -> None:
        model, changed = simplify("g (float[2, 3] x) => (int64[2] y) { y = Shape(x) }")
        assert ops(model) == ["Shape"]
        assert changed == []


class TestReshape:
    VIEW = "b = Shape<start = 0, end = 1>(x) s = Shape<start = 1, end = 2>(x) z = Concat<axis = 0>(b, s, {rest})"

    def test_heads_are_parted(self) -> None:
        body = f"{self.VIEW.format(rest='minus, sixteen')} r = Reshape<allowzero = 1>(x, z) y = Neg(r)"
        model, _ = simplify(f"g (float[b, s, 64] x) => (float[b, s, 4, 16] y) {{ {body} }}", {"b": 2, "s": 5})
        assert ops(model) == ["Reshape", "Neg"]
        assert only_shape(model, "Reshape") == [0, 0, 4, 16]
        assert "allowzero" not in model.graph[0].attributes

    def test_empty_batches(self) -> None:
        body = f"{self.VIEW.format(rest='four, sixteen')} r = Reshape<allowzero = 1>(x, z) y = Neg(r)"
        simplify(f"g (float[b, s, 64] x) => (float[b, s, 4, 16] y) {{ {body} }}", {"b": 0, "s": 5})

    def test_one_open_size(self) -> None:
        body = "b = Shape<start = 1, end = 2>(x) z = Concat<axis = 0>(b, four) r = Reshape(x, z) y = Neg(r)"
        model, _ = simplify(f"g (float[4, n] x) => (float[n, 4] y) {{ {body} }}")
        assert only_shape(model, "Reshape") == [-1, 4]

    def test_two_open_sizes_that_move(self) -> None:
        sizes = "a = Shape<start = 0, end = 1>(x) b = Shape<start = 1, end = 2>(x) z = Concat<axis = 0>(b, a)"
        body = f"{sizes} r = Reshape(x, z) y = Neg(r)"
        model, changed = simplify(f"g (float[n, m] x) => (float[m, n] y) {{ {body} }}", {"n": 2, "m": 5})
        assert changed == []
        assert "Concat" in ops(model)

    def test_to_the_shape_it_has(self) -> None:
        model, _ = simplify("g (float[n, 4] x) => (float[n, 4] y) { s = Shape(x) r = Reshape(x, s) y = Neg(r) }")
        assert ops(model) == ["Neg"]

    def test_there_and_back(self) -> None:
        body = "a = Flatten<axis = 2>(x) s = Shape(x) r = Reshape(a, s) y = Neg(r)"
        model, _ = simplify(f"g (float[n, 2, 3, 4] x) => (float[n, 2, 3, 4] y) {{ {body} }}")
        assert ops(model) == ["Neg"]

    def test_two_in_a_row(self) -> None:
        body = "a = Reshape(x, f) r = Reshape(a, z) y = Neg(r)"
        model, _ = simplify(f"g (float[n, 6] x) => (float[m, 2] y) {{ {body} }}", f=np.array([-1]), z=np.array([-1, 2]))
        assert ops(model) == ["Reshape", "Neg"]

    def test_two_in_a_row_that_copy_a_size(self) -> None:
        body = "a = Reshape(x, f) r = Reshape(a, z) y = Neg(r)"
        text = f"g (float[n, 6] x) => (float[k, 3, 1] y) {{ {body} }}"
        model, changed = simplify(text, f=np.array([-1, 3]), z=np.array([0, 3, 1]))
        assert changed == []
        assert ops(model) == ["Reshape", "Reshape", "Neg"]

    @pytest.mark.parametrize("dims", ["2, 3, 5, 4", "n, 3, s, 4"])
    def test_matrices_that_are_transposed_as_one_stack(self, dims: str) -> None:
        b, h, s, d = dims.split(", ")
        body = """s0 = Shape(x) s = Slice(s0, two, three) bh = Slice(s0, zero, two)
        stack = Concat<axis = 0>(minus, s, four) a = Reshape(x, stack) t = Transpose<perm = [0, 2, 1]>(a)
        back = Concat<axis = 0>(bh, four, s) r = Reshape(t, back) y = Neg(r)"""
        model, _ = simplify(f"g (float[{dims}] x) => (float[{b}, {h}, {d}, {s}] y) {{ {body} }}")
        assert ops(model) == ["Transpose", "Neg"]
        assert list(model.graph[0].attributes["perm"].as_ints()) == [0, 1, 3, 2]

    def test_a_shape_that_the_caller_passes(self) -> None:
        text = "g (float[n] x, int64[2] s) => (float[a, b] y) { r = Reshape(x, s) y = Neg(r) }"
        model = make(text)
        assert run_passes(model, [ShapeSimplification()], check=True).changed == []


class TestWhatCancels:
    @pytest.mark.parametrize(
        ("body", "left"),
        [
            ("a = Identity(x) y = Neg(a)", ["Neg"]),
            ("a = Transpose<perm = [0, 1, 2]>(x) y = Neg(a)", ["Neg"]),
            ("a = Transpose<perm = [2, 0, 1]>(x) b = Transpose<perm = [1, 2, 0]>(a) y = Neg(b)", ["Neg"]),
            ("a = Transpose(x) b = Transpose(a) y = Neg(b)", ["Neg"]),
            ("a = Unsqueeze(x, one) b = Squeeze(a, one) y = Neg(b)", ["Neg"]),
            ("a = Unsqueeze(x, pair) b = Squeeze(a, pair) y = Neg(b)", ["Neg"]),
            ("a = Cast<to = 1>(x) y = Neg(a)", ["Neg"]),
            ("a = Cast<to = 11>(x) b = Cast<to = 1>(a) y = Neg(b)", ["Neg"]),
            ("a = Cast<to = 10>(x) b = Cast<to = 1>(a) y = Neg(b)", ["Cast", "Cast", "Neg"]),
            ("a = Expand(x, ones) y = Neg(a)", ["Neg"]),
            ("s = Shape(x) a = Expand(x, s) y = Neg(a)", ["Neg"]),
            ("a = Slice(x, zero, end, one) y = Neg(a)", ["Neg"]),
            ("a = Slice(x, zero, four, two) y = Neg(a)", ["Neg"]),
            ("a = Concat<axis = 0>(x) y = Neg(a)", ["Neg"]),
        ],
    )
    def test_forms(self, body: str, left: list[str]) -> None:
        model, _ = simplify(f"g (float[n, 3, 4] x) => (float[n, 3, 4] y) {{ {body} }}")
        assert ops(model) == left

    def test_other_axes_do_not_cancel(self) -> None:
        body = "a = Unsqueeze(x, two) b = Squeeze(a, zero) y = Neg(b)"
        model, changed = simplify(f"g (float[1, n, 4] x) => (float[n, 1, 4] y) {{ {body} }}")
        assert changed == []
        assert ops(model) == ["Unsqueeze", "Squeeze", "Neg"]

    def test_transposes_that_join(self) -> None:
        body = "a = Transpose<perm = [0, 2, 1]>(x) b = Transpose<perm = [1, 0, 2]>(a) y = Neg(b)"
        model, _ = simplify(f"g (float[n, 3, 4] x) => (float[4, n, 3] y) {{ {body} }}")
        assert ops(model) == ["Transpose", "Neg"]
        assert list(model.graph[0].attributes["perm"].as_ints()) == [2, 0, 1]

    def test_casts_that_join(self) -> None:
        body = "a = Cast<to = 6>(x) b = Cast<to = 11>(a) y = Neg(b)"
        model, _ = simplify(f"g (int8[n] x) => (double[n] y) {{ {body} }}")
        assert ops(model) == ["Cast", "Neg"]

    def test_sizes_that_an_expand_need_not_ask_for(self) -> None:
        body = "b = Shape<start = 0, end = 1>(x) z = Concat<axis = 0>(b, four, three) a = Expand(x, z) y = Neg(a)"
        model, _ = simplify(f"g (float[n, 1, 3] x) => (float[n, 4, 3] y) {{ {body} }}")
        assert ops(model) == ["Expand", "Neg"]
        assert only_shape(model, "Expand") == [1, 4, 3]

    def test_the_caller_reads_it(self) -> None:
        model, changed = simplify("g (float[n] x) => (float[n] y) { y = Identity(x) }")
        assert ops(model) == ["Identity"]
        assert changed == []

    def test_somebody_left_a_note_on_it(self) -> None:
        model = make("g (float[n] x) => (float[n] y) { a = Identity(x) y = Neg(a) }")
        model.graph[0].outputs[0].metadata_props["dovetail.debug"] = "1"
        assert run_passes(model, [ShapeSimplification()], check=True).changed == []

    def test_in_a_branch_and_not_in_a_loop(self) -> None:
        text = """g (float[n] x, bool c, int64 k) => (float[n] y, float[n] z) {
        y = If (c) <then_branch = t () => (float[n] p) { a = Identity(x) p = Neg(a) },
                    else_branch = e () => (float[n] q) { q = Abs(x) }>
        z = Loop (k, c, x) <body = l (int64 i, bool d, float[n] u) => (bool d2, float[n] w)
                            { d2 = Identity(d) v = Identity(u) w = Neg(v) }> }"""
        model = make(text)
        changed = run_passes(model, [ShapeSimplification()], check=True).changed
        assert len(changed) == 1
        names = [node.op_type for node in model.graph.all_nodes()]
        assert names.count("Identity") == 2


STEPS = {
    "transpose": "t{i} = Transpose<perm = {perm}>({x})",
    "identity": "t{i} = Identity({x})",
    "wide": "t{i} = Cast<to = 11>({x})",
    "single": "t{i} = Cast<to = 1>({x})",
    "flat": "t{i} = Reshape({x}, minus)",
    "same": "s{i} = Shape({x}) t{i} = Reshape({x}, s{i})",
    "split": "s{i} = Size({x}) h{i} = Div(s{i}, two) z{i} = Concat<axis = 0>(two, h{i}) t{i} = Reshape({x}, z{i})",
    "unsqueeze": "t{i} = Unsqueeze({x}, zero)",
    "squeeze": "u{i} = Unsqueeze({x}, one) t{i} = Squeeze(u{i}, one)",
    "expand": "s{i} = Shape({x}) t{i} = Expand({x}, s{i})",
    "slice": "t{i} = Slice({x}, zero, end, zero)",
    "lone": "t{i} = Concat<axis = 0>({x})",
    "neg": "t{i} = Neg({x})",
}


@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=9),
    st.sampled_from([("2, 3, 4", {}), ("n, 3, 4", {"n": 2}), ("n, m, 4", {"n": 2, "m": 5}), ("n, 3, 4", {"n": 4})]),
    st.randoms(use_true_random=False),
)
def test_random_chains_give_the_same_numbers(steps: list[str], shape: tuple[str, dict[str, int]], chance: Any) -> None:
    dims, sizes = shape
    rank, name, body = 3, "x", []
    for index, step in enumerate(steps):
        if rank > 6 and step == "unsqueeze":
            continue
        perm = list(range(rank))
        chance.shuffle(perm)
        body.append(STEPS[step].format(i=index, x=name, perm=perm))
        rank = {"flat": 1, "split": 2, "unsqueeze": rank + 1}.get(step, rank)
        name = f"t{index}"
    body.append(f"c = Cast<to = 1>({name}) y = Abs(c)")
    model = make(f"g (float[{dims}] x) => (float{_any_shape(rank)} y) {{ {' '.join(body)} }}", **INTS)
    check_numbers(model, [ShapeSimplification(), DeadCode()], tolerance=None, sizes=sizes)
    assert run_passes(model, [ShapeSimplification()], check=True).changed == []


def _any_shape(rank: int) -> str:
    return f"[{', '.join(f'o{axis}' for axis in range(rank))}]"
