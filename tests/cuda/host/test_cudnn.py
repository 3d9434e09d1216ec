"""Plans of cuDNN are candidates for convolutions where it is here: proposed, timed, stored, loaded and run."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail.errors import DovetailError, ProviderError
from dovetail.provider.loader import get_default_options, set_default_options
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.run.convolutions import MOST_WORKSPACE_BYTES, ConvPlan
from dovetail_cuda.run.stream_states import StreamState
from dovetail_cuda.tune.conv_form import ConvForm, match_convolution
from tests.cuda.host.fake_cudnn import FakeConvolutions
from tests.cuda.host.test_numbers import _check
from tests.cuda.images import HEAD
from tests.cuda.inputs import make_inputs

BLOCK = """(float[2,16,6,5] x, float[16,16,3,3] w, float[16,16,1,1] v, float[16] b) => (float[2,6,5,16] y) {
    k = Conv(x, v) a = Conv<pads=[1,1,1,1]>(k, w, b) r = Relu(a) c = Conv(r, v, b) s = Add(c, k) u = Relu(s)
    y = Transpose<perm=[0,2,3,1]>(u) }"""
MODELS = {
    "residual": BLOCK,
    "strides": """(float[2,8,11,9] x, float[24,8,3,3] w, float[24] b) => (float[2,5,5,24] y) {
        c = Conv<pads=[0,1,1,1], strides=[2,2]>(x, w, b) y = Transpose<perm=[0,2,3,1]>(c) }""",
    "dilated": """(float[1,8,12,12] x, float[16,8,3,3] w) => (float[1,8,8,16] y) {
        c = Conv<dilations=[2,2]>(x, w) s = Sigmoid(c) m = Mul(c, s) y = Transpose<perm=[0,2,3,1]>(m) }""",
    "grouped": """(float[1,16,5,6] x, float[24,4,3,3] w) => (float[1,5,6,24] y) {
        c = Conv<pads=[1,1,1,1], group=4>(x, w) t = Tanh(c) y = Transpose<perm=[0,2,3,1]>(t) }""",
    "one dimension": """(float[2,8,40] x, float[32,8,5] w, float[32] b) => (float[2,38,32] y) {
        c = Conv<pads=[1,1]>(x, w, b) y = Transpose<perm=[0,2,1]>(c) }""",
}


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 1)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_EARLY", 0)


@pytest.fixture
def library(paper: Any) -> Any:
    """The toolbox of a provider that has cuDNN."""
    provider, _ = paper
    provider._toolbox.has_cudnn = True
    return provider._toolbox


def _parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def _compile(text: str) -> Any:
    return dovetail.compile(_parse(text), providers=["cuda", "cpu"])


def _list_candidates(engine: Any) -> list[list[str]]:
    tables = [table for table in engine.manifest.tuning if table.name.startswith("convolution")]
    return [[row.name for row in table.candidates if row.name.startswith("cuDNN")] for table in tables]


@pytest.mark.parametrize("name", list(MODELS))
def test_plans_of_a_library_give_what_cpu_gives(paper: Any, library: Any, name: str) -> None:
    _check(_parse(MODELS[name]), 2e-4)
    assert "convolution" in paper[1].launched  # NumPy is faster than the interpreter


def test_both_plans_are_timed_for_each_convolution(library: Any) -> None:
    assert _list_candidates(_compile(BLOCK)) == [["cuDNN 91901 eng1_k2=4", "cuDNN 91901 eng34"]] * 3


@pytest.mark.parametrize(
    ("options", "count", "size"),
    [
        ({"enable_cudnn": "0"}, 0, 0),
        ({"cudnn_conv_algo_search": "HEURISTIC"}, 1, MOST_WORKSPACE_BYTES),
        ({"cudnn_conv_use_max_workspace": "0"}, 2, MOST_WORKSPACE_BYTES // 2),
    ],
)
def test_options_say_what_is_asked(library: Any, options: dict[str, str], count: int, size: int) -> None:
    kept = get_default_options("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        set_default_options("cuda", {**kept, **options})
    names = _list_candidates(_compile(MODELS["strides"]))
    assert [len(each) for each in names] == ([count] if count else [])
    searches = [search for each in library.convolvers for search in each.searches]
    assert [search.workspace_bytes for search in searches] == [size] * len(searches)
    assert bool(searches) == bool(count)


def test_a_library_that_does_not_open_is_warned_of_and_left_out(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gpu: Any) -> Any:
        raise ProviderError("the library does not start", where="cuDNN")

    monkeypatch.setattr(library, "open_convolutions", fail)
    with pytest.warns(RuntimeWarning, match="the library does not start; convolutions are kernels of this back end"):
        assert _list_candidates(_compile(MODELS["strides"])) == []


def test_nothing_is_opened_where_nothing_is_convolved(library: Any) -> None:
    _compile("(float[4,5] x) => (float[4,5] y) { a = Exp(x) y = Neg(a) }")
    assert library.convolvers == []


def test_what_was_built_once_is_in_the_store(library: Any) -> None:
    _compile(MODELS["strides"])
    asked = [len(each.searches) for each in library.convolvers]
    _compile(MODELS["strides"])
    assert [len(each.searches) for each in library.convolvers][: len(asked)] == asked
    assert sum(asked) == 1


def test_a_plan_is_saved_and_loaded(paper: Any, library: Any) -> None:
    inputs = make_inputs(_parse(BLOCK))
    engine = _compile(BLOCK)
    expected = engine(*inputs)
    loaded = dovetail.Runtime().deserialize_cuda_engine(engine.serialize())
    for _ in range(3):
        np.testing.assert_array_equal(loaded(*inputs), expected)


def test_another_version_takes_the_first_plan_of_the_heuristic_and_says_so(library: Any) -> None:
    inputs = make_inputs(_parse(BLOCK))
    engine = _compile(BLOCK)
    expected, plan = engine(*inputs), engine.serialize()
    for each in library.convolvers:
        each.version = 92000
    with pytest.warns(RuntimeWarning, match="timed with cuDNN 91901, and cuDNN 92000 has no use"):
        loaded = dovetail.Runtime().deserialize_cuda_engine(plan)
    np.testing.assert_allclose(loaded(*inputs), expected, rtol=1e-5, atol=1e-5)


def test_a_plan_that_the_library_cannot_read_is_replaced(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = make_inputs(_parse(MODELS["strides"]))
    engine = _compile(MODELS["strides"])
    expected, prepare, other = engine(*inputs), FakeConvolutions.prepare, ConvPlan(tag="eng99", engine=99)

    def refuse(this: Any, conv: Any, plan: Any, code: bytes) -> Any:
        if plan != other:
            raise ProviderError("it cannot be read", where="cuDNN")
        return prepare(this, conv, plan, code)

    monkeypatch.setattr(FakeConvolutions, "prepare", refuse)
    monkeypatch.setattr("tests.cuda.host.fake_cudnn.PLANS", (other,))
    with pytest.warns(RuntimeWarning, match="cuDNN 91901 has no use for its plan; the first plan of its heuristic"):
        loaded = dovetail.Runtime().deserialize_cuda_engine(engine.serialize())
    np.testing.assert_allclose(loaded(*inputs), expected, rtol=1e-5, atol=1e-5)


def test_a_library_that_has_no_plan_any_more_is_an_error(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _compile(MODELS["strides"]).serialize()
    for each in library.convolvers:
        each.version = 92000
    monkeypatch.setattr(FakeConvolutions, "build_plans", lambda this, conv, search: [])
    with pytest.raises(
        DovetailError, match=r"cuDNN has no plan for a convolution(.|\n)*cuDNN 92000(.|\n)*build the plan"
    ):
        dovetail.Runtime().deserialize_cuda_engine(plan)


def test_a_plan_cannot_be_loaded_where_the_library_is_absent(
    paper: Any, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _compile(MODELS["strides"]).serialize()
    paper[0]._streams._default = StreamState(0, paper[0]._streams._libraries)
    library.has_cudnn = False
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(DovetailError, match="done by cuDNN, whose front end is not here") as caught:
        dovetail.Runtime().deserialize_cuda_engine(plan)
    assert "pip install 'dovetail-cuda[cudnn]'" in str(caught.value)


def test_streams_have_handles_of_their_own_which_go_with_them(paper: Any, library: Any) -> None:
    provider, states = paper[0], paper[0]._streams
    first, second = provider.create_stream(), provider.create_stream()
    found = states.find(first.handle).convolutions
    assert states.find(first.handle).convolutions is found
    assert states.find(second.handle).convolutions is not found
    first.close()
    del first
    provider._gpu.release_now()
    assert found.is_closed


# forms


def _match(text: str) -> ConvForm | None:
    regions = plan_partition(ir.from_proto(_parse(text))).regions
    return match_convolution([each for each in regions if isinstance(each, ConvRegion)][-1], allows_tf32=False)


def _follow(ops: str, kind: str = "float16") -> str:
    return f"""({kind}[1,16,8,8] x, {kind}[32,16,3,3] w, {kind}[32] b, {kind}[1,8,8,32] r) => ({kind}[1,8,8,32] y) {{
        q = Transpose<perm=[0,3,1,2]>(r) c = Conv<pads=[1,1,1,1]>(x, w, b) {ops} y = Transpose<perm=[0,2,3,1]>(o) }}"""


@pytest.mark.parametrize(
    ("ops", "activation", "has_residual"),
    [
        ("o = Identity(c)", "", False),
        ("o = Relu(c)", "relu", False),
        ("s = Add(c, q) o = Relu(s)", "relu", True),
        ("s = Add(q, c) o = Identity(s)", "", True),
        ("l = Constant<value=float{0}>() h = Constant<value=float{6}>() o = Clip(c, l, h)", "relu6", False),
        ("l = Sigmoid(c) o = Mul(c, l)", "swish", False),
        ("o = Sigmoid(c)", "sigmoid", False),
        ("o = Tanh(c)", "tanh", False),
        ("o = Gelu(c)", "gelu", False),
        ('o = Gelu<approximate="tanh">(c)', "gelu_tanh", False),
    ],
)
def test_what_follows_is_found(ops: str, activation: str, has_residual: bool) -> None:
    form = _match(_follow(ops, "float" if "Constant" in ops else "float16"))
    assert form is not None
    made = form.convolution
    assert (made.activation, made.has_bias, made.has_residual) == (activation, True, has_residual)
    assert (form.residual is not None) == has_residual
    assert made.image_strides == (1024, 1, 128, 16)
    assert made.result_strides == (2048, 1, 256, 32)


@pytest.mark.parametrize(
    "text",
    [
        _follow("o = HardSwish(c)"),
        _follow("h = Relu(c) o = Add(h, q)"),
        _follow("o = Mul(c, q)"),
        _follow("o = Relu(c)", "double"),
        _follow("s = Add(c, q) t = Add(s, q) o = Relu(t)"),
        _follow("o = Relu(c)").replace("y = Transpose<perm=[0,2,3,1]>(o)", "y = Transpose<perm=[0,3,2,1]>(o)"),
        """(float[1,24,7,9] x, float[24,1,5,5] w) => (float[1,3,5,24] y) {
            c = Conv<group=24>(x, w) y = Transpose<perm=[0,2,3,1]>(c) }""",
    ],
)
def test_what_the_library_has_not_is_left_to_kernels(text: str) -> None:
    regions = plan_partition(ir.from_proto(_parse(text))).regions
    assert not any(isinstance(each, ConvRegion) for each in regions) or _match(text) is None
