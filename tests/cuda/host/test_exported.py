"""Models as PyTorch exports them: each is one partition, wholly this provider's, of few launches."""

from __future__ import annotations

from typing import Any

import pytest

import dovetail
from dovetail.build.builder import Builder
from dovetail.network.importer.importer import import_model
from dovetail.provider.loader import register_provider, unregister_provider
from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from tests.cuda.host.fake_provider import FakeToolbox, make_factory
from tests.cuda.skeletons import FOLDER, fill

MOST_LAUNCHES = {
    "resnet50-1": 60,
    "mobilenet_v3_large-1": 85,
    "convnext_tiny-1": 88,
    "vit_b_16-1": 92,
    "bert_base-1": 90,
    "gpt2-1": 92,
}
SLOW = ("vit_b_16-1", "bert_base-1", "gpt2-1")


class NoCode(FakeToolbox):
    """Compiles nothing: this is about what would be."""

    def compile(self, request: KernelRequest) -> Any:
        return CompiledCode(code=b"none", name=request.function, num_warps=request.num_warps, shared_bytes=0)


@pytest.fixture
def config(tmp_path: Any) -> Any:
    factory = make_factory()
    factory._toolbox = NoCode(factory._toolbox.driver)
    register_provider(factory)
    made = dovetail.BuilderConfig()
    made.providers = ["cuda", "cpu"]
    made.provider_options = {"cuda": {"target": "NVIDIA H200-sm_90-132", "kernel_store": str(tmp_path)}}
    yield made
    unregister_provider("cuda")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MOST_LAUNCHES])
def test_an_exported_model_is_one_partition_of_few_launches(config: Any, name: str) -> None:
    builder = Builder()
    model = fill((FOLDER / f"{name}.onnx.xz").read_bytes())
    imported = import_model(model, registry=builder.get_plugin_registry(), logger=builder.logger)
    manifest = builder.build_plan(imported, config, is_open=True).manifest
    (step,) = manifest.programs[0].steps
    assert (step.provider, step.kind) == ("cuda", "partition")
    assert step.partition is not None
    assert step.partition.report is not None
    assert len(step.partition.report.nodes) <= MOST_LAUNCHES[name]
