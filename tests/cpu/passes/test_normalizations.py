"""Layer normalization and RMS normalization, written out in the ways exporters have."""

from __future__ import annotations

import pytest

from dovetail.passes.fusions.base import always
from dovetail.passes.fusions.layer_normalization import LayerNormalizationFusion
from dovetail.passes.fusions.rms_normalization import RMSNormalizationFusion
from tests.support.pass_graphs import check_numbers, make, ops

WEIGHTS = """<float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}, float two = {2},
float three = {3}, float one = {1}, float eps = {0.001}, int64[1] last = {-1}, int64[1] third = {2},
int64[1] first = {0}, int64[2] trailing = {1, 2}, float[4, 8] wide = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,
1,2,3,4,5,6,7,8}>"""
HEADER = "g (float[n, 4, 8] x) => (float[n, 4, 8] y)"
CENTRED = "m = ReduceMean(x, last) d = Sub(x, m)"
POW = "q = Pow(d, two)"
SPREAD = "v = ReduceMean(q, last) s = Add(v, eps) r = Sqrt(s)"


def layer(body: str, opset: int = 18, header: str = HEADER) -> tuple[list[str], list[str]]:
    model = make(f"{header} {WEIGHTS} {{ {body} }}", opset)
    changed = check_numbers(model, [LayerNormalizationFusion(accepts=always)], tolerance=1e-4)
    return ops(model), changed


def rms(body: str, opset: int = 20, header: str = HEADER) -> tuple[list[str], list[str]]:
    model = make(f"{header} {WEIGHTS} {{ {body} }}", opset)
    changed = check_numbers(model, [RMSNormalizationFusion(accepts=always)], tolerance=1e-4)
    return ops(model), changed


class TestLayerNormalization:
    @pytest.mark.parametrize("square", [POW, "q = Mul(d, d)"])
    @pytest.mark.parametrize(
        "normal", ["t = Div(d, r)", "i = Reciprocal(r) t = Mul(d, i)", "i = Div(one, r) t = Mul(i, d)"]
    )
    @pytest.mark.parametrize("end", ["u = Mul(t, w) y = Add(u, b)", "u = Mul(w, t) y = Add(b, u)"])
    def test_forms(self, square: str, normal: str, end: str) -> None:
        names, changed = layer(f"{CENTRED} {square} {SPREAD} {normal} {end}")
        assert names == ["LayerNormalization"]
        assert len(changed) == 1

    def test_without_a_bias(self) -> None:
        names, _ = layer(f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, w)")
        assert names == ["LayerNormalization"]

    def test_what_is_added_is_no_bias(self) -> None:
        names, _ = layer(f"{CENTRED} {POW} {SPREAD} t = Div(d, r) u = Mul(t, w) y = Add(u, x)")
        assert names == ["LayerNormalization", "Add"]

    def test_axes_as_an_attribute_and_an_older_opset(self) -> None:
        body = f"{CENTRED} {POW} {SPREAD} t = Div(d, r) u = Mul(t, w) y = Add(u, b)".replace(
            "(x, last)", "<axes = [2]>(x)"
        ).replace("(q, last)", "<axes = [-1]>(q)")
        names, _ = layer(body, 14)
        assert names == ["LayerNormalization"]

    def test_several_axes(self) -> None:
        body = f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, wide)".replace("last", "trailing")
        assert layer(body)[0] == ["LayerNormalization"]

    @pytest.mark.parametrize(
        "body",
        [
            f"{CENTRED} {POW.replace('two', 'three')} {SPREAD} t = Div(d, r) y = Mul(t, w)",
            f"{CENTRED.replace('last', 'trailing')} {POW} {SPREAD} t = Div(d, r) y = Mul(t, w)",
            f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, one)",
            f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, x)",
            f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Neg(t)",
            f"{CENTRED} {POW} {SPREAD} t = Div(d, r) u = Mul(t, w) y = Add(u, r)".replace(
                "y = Add(u, r)", "z = Add(u, r) y = Add(z, s)"
            ),
            f"{CENTRED} {POW} {SPREAD} t = Div(x, r) y = Mul(t, w)",
        ],
    )
    def test_what_is_none(self, body: str) -> None:
        names, changed = layer(body)
        assert "LayerNormalization" not in names
        assert changed == []

    def test_the_first_axis_is_not_the_last(self) -> None:
        body = f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, w)".replace("last", "first")
        assert layer(body)[1] == []

    def test_double_stays_double(self) -> None:
        text = f"{CENTRED} {POW} {SPREAD} t = Div(d, r) y = Mul(t, w)"
        weights = (
            "<double[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, double two = {2}, double eps = {0.001}, int64[1] last = {-1}>"
        )
        model = make(f"g (double[n, 4, 8] x) => (double[n, 4, 8] y) {weights} {{ {text} }}", 18)
        assert check_numbers(model, [LayerNormalizationFusion(accepts=always)]) == []


class TestRMSNormalization:
    @pytest.mark.parametrize("square", ["q = Pow(x, two)", "q = Mul(x, x)"])
    @pytest.mark.parametrize(
        "normal", ["t = Div(x, r)", "i = Reciprocal(r) t = Mul(x, i)", "i = Div(one, r) t = Mul(i, x)"]
    )
    @pytest.mark.parametrize("end", ["y = Mul(t, w)", "y = Mul(w, t)"])
    def test_forms(self, square: str, normal: str, end: str) -> None:
        names, changed = rms(f"{square} {SPREAD} {normal} {end}")
        assert names == ["RMSNormalization"]
        assert len(changed) == 1

    @pytest.mark.parametrize("axes", ["third", "trailing"])
    def test_other_axes(self, axes: str) -> None:
        weights = "w" if axes == "third" else "wide"
        body = f"q = Pow(x, two) {SPREAD.replace('last', axes)} t = Div(x, r) y = Mul(t, {weights})"
        assert rms(body)[0] == ["RMSNormalization"]

    def test_an_older_opset_with_other_means(self) -> None:
        """What stays is written for the new opset: its axes are an input there."""
        body = "q = Pow(x, two) v = ReduceMean<axes = [-1]>(q) s = Add(v, eps) r = Sqrt(s) t = Div(x, r) u = Mul(t, w)"
        model = make(f"{HEADER} {WEIGHTS} {{ {body} k = ReduceMean<axes = [1]>(u) y = Add(u, k) }}", 17)
        assert len(check_numbers(model, [RMSNormalizationFusion(accepts=always)], tolerance=1e-4)) == 1
        assert ops(model) == ["RMSNormalization", "ReduceMean", "Add"]
        assert model.opset_imports[""] == 23

    def test_half_precision_with_statistics_in_single(self) -> None:
        weights = WEIGHTS.replace("float[8] w", "float16[8] w")
        body = f"x = Cast<to = 1>(h) q = Pow(x, two) {SPREAD} t = Div(x, r) u = Cast<to = 10>(t) y = Mul(u, w)"
        model = make(f"g (float16[n, 4, 8] h) => (float16[n, 4, 8] y) {weights} {{ {body} }}")
        assert len(check_numbers(model, [RMSNormalizationFusion(accepts=always)], tolerance=2e-3)) == 1
        assert ops(model) == ["RMSNormalization"]

    @pytest.mark.parametrize(
        "body",
        [
            f"q = Pow(x, three) {SPREAD} t = Div(x, r) y = Mul(t, w)",
            f"q = Pow(x, two) {SPREAD} i = Div(two, r) t = Mul(i, x) y = Mul(t, w)",
            f"q = Pow(x, two) {SPREAD} t = Div(x, r) y = Mul(t, two)",
            f"q = Pow(x, two) {SPREAD} t = Div(x, r) y = Neg(t)",
            f"q = Pow(x, two) {SPREAD} t = Div(x, r) u = Mul(t, w) y = Add(u, r)",
        ],
    )
    def test_what_is_none(self, body: str) -> None:
        names, changed = rms(body)
        assert "RMSNormalization" not in names
        assert changed == []

    def test_an_epsilon_to_keep(self) -> None:
        model = make(f"{HEADER} {WEIGHTS} {{ q = Pow(x, two) {SPREAD} t = Div(x, r) y = Mul(t, w) }}")
        assert check_numbers(model, [RMSNormalizationFusion(accepts=always, keep=frozenset({"eps"}))]) == []
