"""Options change what is built and how it runs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.provider.loader import get_default_options, get_provider, set_default_options
from tests.cuda.images import HEAD, MODELS
from tests.cuda.models import make_block


@pytest.fixture
def choose(paper: Any) -> Any:
    """Sets options of the provider besides its folder."""
    kept = get_default_options("cuda")

    def set_options(**options: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            set_default_options("cuda", {**kept, **options})

    return set_options


def _list_candidates(engine: Any, prefix: str) -> list[list[str]]:
    tables = [table for table in engine.manifest.tuning if table.name.startswith(prefix)]
    return [[row.name for row in table.candidates] for table in tables]


def test_a_heuristic_search_times_no_tiles_of_convolutions(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    monkeypatch.setattr("dovetail_cuda.tune.conv_tiles._MOST_TILES", 2)
    model = onnx.parser.parse_model(HEAD + MODELS["3x3"])
    assert _list_candidates(dovetail.compile(model, providers=["cuda", "cpu"]), "convolution")
    choose(cudnn_conv_algo_search="HEURISTIC")
    assert _list_candidates(dovetail.compile(model, providers=["cuda", "cpu"]), "convolution") == []


@pytest.mark.parametrize(("bits", "is_one_kernel"), [("16", False), ("1", True)])
def test_attention_is_computed_as_the_bits_say(
    choose: Any, small_attention: None, bits: str, is_one_kernel: bool
) -> None:
    choose(sdpa_kernel=bits, target="sm_90")
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    plan = dovetail.Builder().build_plan(
        _import(make_block(batch=1, length=64, width=64, heads=2)), config, is_open=True
    )
    (names,) = [[row.name for row in t.candidates] for t in plan.manifest.tuning if t.name.startswith("attention")]
    assert names
    assert all(name.startswith("attention") == is_one_kernel for name in names), names


def _import(model: onnx.ModelProto) -> Any:
    from dovetail.loggers import Logger
    from dovetail.network.importer.importer import import_model
    from dovetail.network.importer.kernels import find_kernel_for
    from dovetail.plugin.registry import get_plugin_registry

    kernels = find_kernel_for(["cuda", "cpu"])
    return import_model(model, registry=get_plugin_registry(), logger=Logger(), kernels=kernels)


def test_contexts_share_a_stream_where_that_is_asked_for(choose: Any) -> None:
    choose(use_ep_level_unified_stream="1")
    provider: Any = get_provider("cuda")
    first, second = provider.create_stream(), provider.create_stream()
    assert first.handle == second.handle
    assert not provider.can_capture
    first.close()
    second.synchronize()  # the stream is the provider's, and closing leaves it alone
    model = onnx.parser.parse_model(HEAD + "(float[4,5] x) => (float[4,5] y) { a = Exp(x) y = Neg(a) }")
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    for _ in range(3):
        np.testing.assert_allclose(engine(x), -np.exp(x), rtol=1e-5)
