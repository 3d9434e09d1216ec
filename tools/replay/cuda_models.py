"""Models built for CUDA: those of the host tests of the provider."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import onnx

__all__ = ["CudaModel", "list_models"]

_ALL = ("target", "device", "tuned")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CudaModel:
    """One model and its build settings."""

    name: str
    make: Callable[[], Any]
    shapes: dict[str, Any] | None = None
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)
    precision: Callable[[], Any] | None = None
    candidate_bytes: int = 64 << 20
    modes: tuple[str, ...] = _ALL
    is_quick: bool = False


def list_models() -> Iterator[CudaModel]:
    """List every model."""
    yield from _list_blocks()
    yield from _list_dynamic()
    yield from _list_images()
    yield from _list_precision()
    yield from _list_categories()
    yield from _list_random()
    yield from _list_exported()


def _parse(text: str, head: str) -> Any:
    return onnx.parser.parse_model(text if text.startswith("<") else head + text)


def _list_blocks() -> Iterator[CudaModel]:
    from tests.cuda import models

    for dtype in ("float32", "float16", "bfloat16"):
        yield CudaModel(name=f"mlp_{dtype}", make=partial(models.make_mlp, dtype), is_quick=dtype == "float16")
        yield CudaModel(name=f"block_{dtype}", make=partial(models.make_block, dtype), is_quick=dtype == "float32")
    wide = partial(models.make_block, "float16", batch=1, length=128, width=256, heads=4)
    yield CudaModel(name="block_wide", make=wide)
    yield CudaModel(name="block_wide_sdpa_kernel_16", make=wide, options={"sdpa_kernel": "16"})
    yield CudaModel(name="block_wide_40_kb_candidates", make=wide, candidate_bytes=40_000)
    yield CudaModel(name="mlp_without_tf32", make=models.make_mlp, options={"use_tf32": "0"})


def _list_dynamic() -> Iterator[CudaModel]:
    from tests.cuda import caches, dynamic_models

    sizes = ((1, 4), (2, 16), (4, 64))
    bert = {"ids": sizes, "mask": sizes}
    tuned = {"tuned_shapes": "batch=1,length=24;length=9999"}
    yield CudaModel(name="bert_profile", make=dynamic_models.make_bert, shapes=bert, is_quick=True)
    yield CudaModel(name="bert_tuned_shapes", make=dynamic_models.make_bert, shapes=bert, options=tuned)
    yield CudaModel(name="bert_open_dims", make=dynamic_models.make_bert, modes=("device",))
    image = {"x": ((1, 3, 16, 16), (4, 3, 16, 16), (9, 3, 16, 16))}
    yield CudaModel(name="cnn_profile", make=dynamic_models.make_cnn, shapes=image, is_quick=True)
    cached = {
        "x": ((1, 2, 1, 16), (2, 2, 1, 16), (4, 2, 1, 16)),
        "at": ((1,), (2,), (4,)),
        "mask": ((1, 1, 1, 8), (2, 1, 1, 8), (4, 1, 1, 8)),
        "past_keys": ((1, 2, 8, 16), (2, 2, 8, 16), (4, 2, 8, 16)),
        "past_values": ((1, 2, 8, 16), (2, 2, 8, 16), (4, 2, 8, 16)),
    }
    for dtype in ("float", "float16"):
        make, aliases = partial(caches.make_cached_layer, dtype), dict(caches.ALIASES)
        yield CudaModel(name=f"cached_layer_{dtype}", make=make, shapes=cached, aliases=aliases)


def _list_images() -> Iterator[CudaModel]:
    from tests.cuda import images

    for name, text in images.MODELS.items():
        yield CudaModel(name=f"image_{name}", make=partial(_parse, text, images.HEAD), is_quick=name == "3x3")


def _list_precision() -> Iterator[CudaModel]:
    from tests.cuda import precision_cases

    make, shape = precision_cases.MODELS["block"]
    for kind in ("fp16", "int8 weights", "int4 weights"):
        precision = partial(precision_cases.make_options, "block", kind)
        name = f"precision_{kind.replace(' ', '_')}"
        yield CudaModel(name=name, make=make, shapes={"x": shape}, precision=precision, is_quick=kind == "int4 weights")


def _list_categories() -> Iterator[CudaModel]:
    from tests.cuda import categories

    for group, models in categories.CATEGORIES.items():
        for name, text in models.items():
            make = partial(_parse, text, categories.HEAD)
            yield CudaModel(name=f"category_{group}_{name}", make=make, modes=("target", "device"))


def _list_random() -> Iterator[CudaModel]:
    from tests.cuda import random_graphs

    def make(seed: int) -> Any:
        return random_graphs.make_random_model(seed, 12)[0]

    for seed in range(8):
        yield CudaModel(name=f"random_{seed}", make=partial(make, seed), is_quick=seed == 0)


def _list_exported() -> Iterator[CudaModel]:
    from tests.cuda import skeletons

    for path in sorted(skeletons.FOLDER.glob("*.onnx.xz")):
        name = path.name.removesuffix(".onnx.xz")
        yield CudaModel(
            name=f"exported_{name}", make=lambda path=path: skeletons.fill(path.read_bytes()), modes=("target",)
        )
