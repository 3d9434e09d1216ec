"""Partitions whose shapes vary inside a profile, in Triton's interpreter, against the kernels of ``cpu``."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.build.builder import Builder
from dovetail.network.importer.importer import import_model
from dovetail.provider.loader import register_provider, unregister_provider
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.run.variants import Payload
from tests.cuda.dynamic_models import make_bert, make_cnn
from tests.cuda.host.fake_provider import fake_cuda, make_factory

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
AXES = "z = Constant<value=int64[1]{0}>() o = Constant<value=int64[1]{1}>() "
MODELS = {
    "plain": "(float[N,M,8] x) => (float[N,M,8] y) { a = Exp(x) b = Tanh(a) y = Sub(b, x) }",
    "stretched": "(float[N,M,8] x, float[M,1] v) => (float[N,M,8] y) { a = Add(x, v) y = Mul(a, x) }",
    "moved": "(float[N,M,8] x) => (float[M,N,8] y) { t = Transpose<perm=[1,0,2]>(x) y = Neg(t) }",
    "joined": "(float[N,M,8] x) => (float[N,K,8] y) { a = Exp(x) c = Concat<axis=1>(a, x, a) y = Neg(c) }",
    "cut": f"""(float[N,M,8] x) => (float[N,K,8] y) {{ {AXES} e = Constant<value=int64[1]{{-1}}>()
        s = Slice(x, z, e, o) n = Slice(x, e, z, o, e) j = Concat<axis=1>(s, x) y = Neg(j) }}""",
    "padded": """(float[N,M,8] x) => (float[N,K,8] y) {
        p = Constant<value=int64[6]{0,1,0,2,0,0}>() q = Pad(x, p) y = Exp(q) }""",
    "rows": """(float[N,M,8] x) => (float[N,M,8] s, float[N,8] m, int64[N,8] i) {
        o = Constant<value=int64[1]{1}>() s = Softmax<axis=1>(x) m = ReduceMean<keepdims=0>(x, o)
        i = ArgMax<axis=1, keepdims=0>(x) }""",
    "normalized": "(float[N,M,8] x, float[8] g, float[8] b) => (float[N,M,8] y) { y = LayerNormalization(x, g, b) }",
    "multiplied": """(float[N,M,8] x, float[8,24] w, float[24] b) => (float[N,M,24] y) {
        p = MatMul(x, w) q = Add(p, b) y = Relu(q) }""",
    "multiplied with itself": """(float[N,M,8] x) => (float[N,M,M] y) {
        t = Transpose<perm=[0,2,1]>(x) p = MatMul(x, t) y = Exp(p) }""",
    "flat": f"""(float[N,M,8] x) => (float[K,8] y, int64[3] s) {{ {AXES} s = Shape(x) n = Gather(s, z) m = Gather(s, o)
        c = Mul(n, m) e = Constant<value=int64[1]{{8}}>() k = Concat<axis=0>(c, e) r = Reshape(x, k) y = Exp(r) }}""",
    "counted": f"""(float[N,M,8] x) => (float[N,M,8] y) {{ {AXES} s = Shape(x) i = Constant<value=int64{{1}}>()
        m = Gather(s, i) zero = Constant<value=int64{{0}}>() r = Range(zero, m, i) u = Unsqueeze(r, o)
        f = Cast<to=1>(u) y = Add(x, f) }}""",
    "wrapped": """(float[N,M,8] x) => (float[N,K,8] y) {
        p = Constant<value=int64[6]{0,1,0,0,1,0}>() q = Pad<mode="wrap">(x, p) y = Exp(q) }""",
    "picked": """(float[N,M,8] x, int64[N] i) => (float[N,8] y, float[N,M,8] z) {
        k = Constant<value=int64{-1}>() l = Gather<axis=1>(x, k) y = Exp(l) z = Gather<axis=0>(x, i) }""",
}
PROFILE = {"x": ((1, 1, 8), (2, 5, 8), (6, 40, 8)), "v": ((1, 1), (5, 1), (40, 1)), "i": ((1,), (2,), (6,))}


def _compile(model: onnx.ModelProto, profile: dict[str, Any] | None, **options: str) -> Any:
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.provider_options = {"cuda": options} if options else {}
    names = {value.name for value in model.graph.input}
    shapes = None if profile is None else {name: profile[name] for name in names & profile.keys()}
    return dovetail.compile(model, config=config, shapes=shapes)


def _draw(model: onnx.ModelProto, sizes: dict[str, int], seed: int = 1) -> dict[str, Any]:
    rng, made = np.random.default_rng(seed), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        is_integer = np.issubdtype(dtype, np.integer)
        low = -1 if value.name == "i" else 0
        drawn = rng.integers(low, low + 2, shape) if is_integer else rng.standard_normal(shape)
        if value.name == "mask":
            drawn[:, 0] = 1  # every query sees something
        made[value.name] = drawn.astype(dtype)
    return made


def _list(results: Any) -> list[Any]:
    return [np.asarray(each) for each in (results.values() if isinstance(results, dict) else [results])]


def _compare(engine: Any, expected: Any, inputs: dict[str, Any], tolerance: float = 1e-5) -> None:
    for found, right in zip(_list(engine(**inputs)), _list(expected(**inputs)), strict=True):
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)


def _payload(engine: Any) -> Payload:
    """What the one step of an engine stores, which is all of it."""
    (step,) = engine.manifest.programs[0].steps
    assert (step.kind, step.provider) == ("partition", "cuda")
    (lease,) = engine._partitions._loaded.values()
    return lease.partition._payload


@pytest.mark.parametrize("name", MODELS)
def test_every_shape_of_a_profile_gives_what_cpu_gives(paper: Any, name: str) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    engine, expected = _compile(model, PROFILE), dovetail.compile(model, providers=["cpu"])
    for n, m in ((2, 5), (1, 1), (3, 40), (6, 17)):
        _compare(engine, expected, _draw(model, {"N": n, "M": m}))
    payload = _payload(engine)
    assert len(payload.variants) == 1
    assert payload.template is not None


SIZES = ((1, 1), (2, 8), (4, 40))


def test_a_transformer_over_any_batch_and_length_gives_what_cpu_gives(paper: Any) -> None:
    model = make_bert(depth=2)
    engine, expected = _compile(model, {"ids": SIZES, "mask": SIZES}), dovetail.compile(model, providers=["cpu"])

    @settings(max_examples=6, deadline=None)
    @given(batch=st.integers(1, 4), length=st.integers(1, 40))
    def check(batch: int, length: int) -> None:
        _compare(engine, expected, _draw(model, {"batch": batch, "length": length}, seed=length), 1e-4)

    check()
    assert [variant.values for variant in _payload(engine).variants] == [[2, 8]]


def test_a_network_for_images_over_any_batch_gives_what_cpu_gives(paper: Any) -> None:
    model = make_cnn()
    engine = _compile(model, {"x": ((1, 3, 16, 16), (4, 3, 16, 16), (9, 3, 16, 16))})
    expected = dovetail.compile(model, providers=["cpu"])
    for batch in (4, 1, 9):
        _compare(engine, expected, _draw(model, {"batch": batch}), 1e-4)
    assert [variant.values for variant in _payload(engine).variants] == [[4]]


def test_kernels_for_one_shape_and_for_any_agree(tmp_path: Path) -> None:
    model = make_bert(width=32, heads=2)
    sizes = ((1, 1), (2, 16), (2, 32))
    with fake_cuda(str(tmp_path)) as (_, driver):
        engine = _compile(model, {"ids": sizes, "mask": sizes}, tuned_shapes="batch=1,length=24;length=99")
        payload = _payload(engine)
        assert [variant.values for variant in payload.variants] == [[2, 16], [1, 24]]
        inputs = _draw(model, {"batch": 1, "length": 24})
        found = _list(engine(**inputs))
        other = _compile(model, {"ids": sizes, "mask": sizes})
        driver.launched.clear()
        for one, two in zip(found, _list(other(**inputs)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_attention_over_any_length_is_one_kernel(tmp_path: Path, small_attention: None) -> None:
    model, sizes = make_bert(longest=128), ((1, 1), (2, 8), (3, 70))
    with fake_cuda(str(tmp_path)) as (_, driver):
        engine = _compile(model, {"ids": sizes, "mask": sizes})
        expected = dovetail.compile(model, providers=["cpu"])
        for batch, length in ((3, 70), (1, 5)):
            driver.launched.clear()
            _compare(engine, expected, _draw(model, {"batch": batch, "length": length}), 1e-4)
            assert "attention" in driver.launched


def test_shapes_without_bounds_run_as_well(paper: Any) -> None:
    text = "(float[N,M,8] x) => (float[M,N,8] y) { s = Softmax<axis=1>(x) t = Transpose<perm=[1,0,2]>(s) y = Exp(t) }"
    model = onnx.parser.parse_model(HEAD + text)
    engine, expected = _compile(model, None), dovetail.compile(model, providers=["cpu"])
    for n, m in ((2, 5), (3, 40), (0, 4)):
        _compare(engine, expected, _draw(model, {"N": n, "M": m}))
    assert _payload(engine).variants == []


def test_shapes_that_only_a_run_tells_its_steps_run_as_well(paper: Any) -> None:
    text = """(float[N,8] x, bool c) => (float[a,8] y) { y = If(c)
        <then_branch = g1 () => (float[b,8] t) { s = Softmax<axis=0>(x) e = Exp(s) t = Softmax<axis=0>(e) },
         else_branch = g2 () => (float[d,8] f) { f = Neg(x) }> }"""
    model = onnx.parser.parse_model(HEAD + text)
    _, driver = paper
    for profile in (None, {"x": ((1, 8), (2, 8), (40, 8))}):
        engine, expected = _compile(model, profile), dovetail.compile(model, providers=["cpu"])
        driver.launched.clear()
        for n in (3, 2, 30):
            for condition in (True, False):
                x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
                _compare(engine, expected, {"x": x, "c": np.array(condition)})
        assert driver.launched


def test_many_shapes_take_no_more_memory(paper: Any) -> None:
    """After the same last shapes as much is held as before, however many others came between."""
    provider, driver = paper
    model = onnx.parser.parse_model(HEAD + MODELS["stretched"])
    engine, rng, held = _compile(model, PROFILE), np.random.default_rng(3), []
    last = [(n, m) for n in (1, 2, 3, 4) for m in (1, 3, 4, 7)] * 3
    with engine.create_execution_context() as context:
        for count in (10, 40):
            others = [(int(rng.integers(1, 7)), int(rng.integers(1, 41))) for _ in range(count)]
            for n, m in (*others, *last):
                context.run(list(_draw(model, {"N": n, "M": m}).values()))
            gc.collect()
            provider._gpu.release_now()
            held.append((sum(driver.sizes.values()), len(driver.executables)))
    assert held[0] == held[1]


def test_a_shape_outside_of_the_profile_is_an_error(paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS["plain"])
    engine = _compile(model, PROFILE)
    with pytest.raises(dovetail.errors.InputError):
        engine(**_draw(model, {"N": 7, "M": 2}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[N,3] x, float[M,3] z) => (float[K,3] y) { y = Add(x, z) }", "may have to be stretched"),
        ("(float[N,3] x) => (float[K,3] y) { y = Squeeze(x) }", "depends on sizes that vary"),
        (
            """(float[N,3] x) => (float[K,3] y) { s = Constant<value=int64[1]{0}>()
            e = Constant<value=int64[1]{4}>() y = Slice(x, s, e, s) }""",
            "holds for some shapes of the profile only",
        ),
    ],
)
def test_what_does_not_hold_for_all_shapes_is_refused_with_the_reason(paper: Any, text: str, reason: str) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    shapes = {value.name: ((1, 3), (2, 3), (9, 3)) for value in model.graph.input}
    engine = dovetail.compile(model, providers=["cuda", "cpu"], shapes=shapes)
    assert any(reason in note.text for note in engine.manifest.notes)
    _compare(engine, dovetail.compile(model, providers=["cpu"]), _draw(model, {"N": 6, "M": 6}))


@pytest.mark.timeout(300)
def test_kernels_for_any_shape_compile_for_sm_90(tmp_path: Path) -> None:
    images = ((1, 3, 32, 32), (4, 3, 32, 32), (64, 3, 32, 32))
    requests = [
        *_list_requests(make_bert("float16", width=64), {"ids": SIZES, "mask": SIZES}, tmp_path),
        *_list_requests(make_cnn("float16", size=32), {"x": images}, tmp_path),
    ]
    assert {"attention", "convolution", "elements", "product", "rows"} <= {request.function for request in requests}
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            compiled = KernelStore(tmp_path / "real", farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") and not code.scratch_bytes for code in compiled)


def _list_requests(model: onnx.ModelProto, profile: dict[str, Any], folder: Path) -> list[KernelRequest]:
    """What is compiled of a model for any shape."""
    factory = make_factory()
    register_provider(factory)
    try:
        _compile_plan(model, profile, target="sm_90", kernel_store=str(folder / model.graph.input[0].name))
    finally:
        unregister_provider("cuda")
    asked = {request.make_key(): request for request in factory._toolbox.compiled}
    return [request for request in asked.values() if {"i32", "i64"} & set(request.signature.values())]


def _compile_plan(model: onnx.ModelProto, profile: dict[str, Any], **options: str) -> None:
    builder, config = Builder(), dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.provider_options = {"cuda": options}
    shapes = dovetail.OptimizationProfile()
    for name, bounds in profile.items():
        shapes.set_shape(name, *bounds)
    config.add_optimization_profile(shapes)
    imported = import_model(model, registry=builder.get_plugin_registry(), logger=builder.logger)
    builder.build_plan(imported, config)
