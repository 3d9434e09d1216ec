"""Models built on the CPU: exported and random models, control flow, profiles, precision, providers and aliases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dovetail as dt
from dovetail.testing import host_device
from replay.recorder import BuildRecorder

__all__ = ["MODEL_CASES", "Run"]

Run = Callable[[BuildRecorder], None]
MODEL_CASES: dict[str, Run] = {}
_MODELS = Path.cwd() / "tests" / "data" / "models"
_F = dt.BuilderFlag
_CACHE = """<ir_version: 10, opset_import: ["" : 24]> g (float[2,3,8,4] past, float[2,3,N,4] new, int64[2] at)
    => (float[2,3,8,4] present, float[2,3,8,4] y) { present = TensorScatter<axis=2>(past, new, at) y = Exp(present) }"""
_RESHAPES = """<ir_version: 10, opset_import: ["" : 20]> g (float[12] x, int64[2] s) => (float[A,B] y, float[C,D] z) {
    y = Reshape(x, s) z = Expand(y, s) }"""


def _case(run: Run) -> Run:
    MODEL_CASES[run.__name__.lstrip("_")] = run
    return run


def _build_file(path: Path, providers: tuple[str, ...], r: BuildRecorder) -> None:
    r.config.providers = list(providers)
    r.build_model(str(path))


def _build_random(seed: int, has_profile: bool, r: BuildRecorder) -> None:
    from tests.support.random_models import make_random_model

    model = make_random_model(seed, plugins=False)
    if has_profile and model.bounds:
        r.add_profile(**model.bounds)
    r.build_model(model.model)


def _build_control_flow(index: int, r: BuildRecorder) -> None:
    from tests.support.ort_control_models import CONTROL_CASES

    r.build_model(CONTROL_CASES[index].model)


for _path in sorted(_MODELS.glob("*.onnx")):
    MODEL_CASES[f"model_{_path.stem}"] = partial(_build_file, _path, ("cpu",))
    MODEL_CASES[f"model_{_path.stem}_onnxruntime"] = partial(_build_file, _path, ("onnxruntime", "cpu"))
for _seed in range(24):
    MODEL_CASES[f"random_{_seed}"] = partial(_build_random, _seed, bool(_seed % 2))
for _index, _name in enumerate(("if", "loop", "scan", "growing", "constant", "overridden", "nested")):
    MODEL_CASES[f"control_{_name}"] = partial(_build_control_flow, _index)


# profiles


def _make_chain() -> Any:
    from tests.support.device_models import chain

    return chain()


@_case
def _profiles_one(r: BuildRecorder) -> None:
    r.add_profile(x=((1, 8), (4, 8), (16, 8)))
    r.config.profiling_verbosity = dt.ProfilingVerbosity.DETAILED
    r.build_model(_make_chain())


@_case
def _profiles_two_refit(r: BuildRecorder) -> None:
    r.add_profile(x=((1, 8), (4, 8), (16, 8)))
    r.add_profile(x=((17, 8), (32, 8), (64, 8)))
    r.config.set_flag(_F.REFIT)
    r.build_model(_make_chain())


@_case
def _profiles_strip_weights(r: BuildRecorder) -> None:
    r.config.set_flag(_F.REFIT)
    r.config.set_flag(_F.STRIP_PLAN)
    r.config.providers = ["onnxruntime", "cpu"]
    r.build_model(_make_chain())


def _build_reshapes(bounds: tuple[Any, ...], r: BuildRecorder) -> None:
    """Output dims that only a profile of the shape input bounds."""
    for low, opt, high in bounds:
        profile = r.builder.create_optimization_profile()
        profile.set_shape_input("s", low, opt, high)
        r.config.add_optimization_profile(profile)
    r.build_model(onnx.parser.parse_model(_RESHAPES))


_BOUNDS = ((1, 1), (3, 4), (12, 12)), ((2, 2), (4, 3), (6, 6)), ((0, 1), (4, 3), (6, 6))
MODEL_CASES["known_dims_one_profile"] = partial(_build_reshapes, _BOUNDS[:1])
MODEL_CASES["known_dims_two_profiles"] = partial(_build_reshapes, _BOUNDS[:2])
MODEL_CASES["known_dims_zero"] = partial(_build_reshapes, _BOUNDS[::2])


# providers


@_case
def _providers_by_layer(r: BuildRecorder) -> None:
    r.config.providers = ["onnxruntime", "cpu"]
    r.config.layer_providers = {"soft*": "cpu"}
    r.config.passes_off = ["dead_code"]
    r.build_model(_make_chain())


@_case
def _providers_only_onnxruntime(r: BuildRecorder) -> None:
    r.config.providers = ["onnxruntime"]
    r.config.provider_options = {"onnxruntime": {"threads": "1"}}
    r.build_model(_make_chain())


@_case
def _providers_host_device(r: BuildRecorder) -> None:
    r.exits.enter_context(host_device())
    r.config.providers = ["host_device", "cpu"]
    r.config.io_memory = {"x": "host"}
    r.build_model(_make_chain())


@_case
def _providers_host_device_profiles(r: BuildRecorder) -> None:
    r.exits.enter_context(host_device())
    r.config.providers = ["host_device", "cpu"]
    r.add_profile(x=((1, 8), (4, 8), (16, 8)))
    r.add_profile(x=((17, 8), (32, 8), (64, 8)))
    r.build_model(_make_chain())


@_case
def _providers_host_device_nhwc(r: BuildRecorder) -> None:
    r.exits.enter_context(host_device(name="d", layout="NHWC"))
    r.config.providers = ["d", "cpu"]
    r.add_profile(x=((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)))
    network = r.create_network()
    x = network.add_input("x", dt.float32, (-1, 3, 8, 8))
    y = network.add_convolution_nd(x, 4, (3, 3), np.ones((4, 3, 3, 3), np.float32)).get_output(0)
    y = network.add_activation(y, dt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    r.build(network)


# precision


def _quantize(types: str, model: Any, r: BuildRecorder) -> None:
    rng, batches = np.random.default_rng(3), []
    for _ in range(3):
        shapes = {i.name: [d.dim_value or 2 for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
        batches.append({name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
    options = dt.PrecisionOptions.parse(types)
    r.config.precision = dataclasses.replace(options, calibration=batches, tolerance=0.02)
    r.build_model(model)


@_case
def _precision_fp16(r: BuildRecorder) -> None:
    from tests.support.precision_models import make_perceptron

    r.config.precision = dt.PrecisionOptions.parse("fp16")
    r.build_model(make_perceptron())


@_case
def _precision_int8(r: BuildRecorder) -> None:
    from tests.support.precision_models import make_perceptron

    _quantize("int8", make_perceptron(), r)


@_case
def _precision_int8_fp16_images(r: BuildRecorder) -> None:
    from tests.support.precision_models import make_image_network

    r.config.providers = ["onnxruntime", "cpu"]
    _quantize("int8+fp16", make_image_network(), r)


# aliases


def _build_aliases(aliases: Any, providers: tuple[str, ...], r: BuildRecorder) -> None:
    r.config.providers, r.config.aliases = list(providers), aliases
    r.build_model(onnx.parser.parse_model(_CACHE))


for _label, _aliases, _providers in (
    ("cpu", {"present": "past"}, ("cpu",)),
    ("onnxruntime", {"present": "past"}, ("onnxruntime", "cpu")),
    ("impossible", {"y": "past"}, ("cpu",)),
    ("unknown_name", {"presence": "past"}, ("cpu",)),
    ("other_size", {"present": "new"}, ("cpu",)),
    ("not_a_mapping", ["present"], ("cpu",)),
):
    MODEL_CASES[f"alias_{_label}"] = partial(_build_aliases, _aliases, _providers)
