"""The V2 plugin files of the tests: what each computes, and a module ``tensorrt`` for them to import."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import dovetail as dt
from dovetail_tensorrt import v2

FOLDER = Path(__file__).parent / "migrate" / "plugins"
Array = Any
_numbers = itertools.count(1)


class NamesModule(ModuleType):
    """The names that plugins use: the V2 interfaces, and everything else from Dovetail itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(v2, name, None) or getattr(dt, name)


@contextmanager
def importable_tensorrt() -> Iterator[None]:
    """Have ``import tensorrt`` find those names meanwhile."""
    before = sys.modules.get("tensorrt")
    sys.modules["tensorrt"] = NamesModule("tensorrt")
    try:
        yield
    finally:
        if before is None:
            del sys.modules["tensorrt"]
        else:
            sys.modules["tensorrt"] = before


@dataclass(frozen=True)
class PluginFile:
    """One file, how its layer is made, and what it must compute."""

    name: str
    creator: str
    shapes: tuple[tuple[int, ...], ...]
    expected: Callable[..., tuple[Array, ...]]
    fields: dict[str, Any] = field(default_factory=dict)
    types: tuple[dt.DataType, ...] = (dt.float32,)
    dynamic_axes: tuple[int, ...] = (0,)

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.py"

    def make_inputs(self, batch: int) -> list[Array]:
        random = np.random.default_rng(batch)
        kinds = itertools.cycle(self.types)
        return [
            random.integers(-2, 12, (batch, *shape[1:])).astype(dtype.numpy)
            if dtype is dt.int32
            else random.normal(size=(batch, *shape[1:])).astype(dtype.numpy)
            for shape, dtype in zip(self.shapes, kinds, strict=False)
        ]


def _pad(x: Array) -> tuple[Array, ...]:
    return (np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, 3), (1, 2)], "wrap"),)


def _table(x: Array) -> tuple[Array, ...]:
    return (np.float32(0.5) * np.clip(x, 0, 9).astype(np.float32) ** 2,)


FILES = (
    PluginFile("circ_pad", "CircPadPluginCreator", ((2, 3, 5, 4),), _pad, {"pads": [1, 2, 0, 3]}),
    PluginFile("table_lookup", "TableCreator", ((2, 6),), _table, {"size": 10, "scale": 0.5}, (dt.int32,)),
    PluginFile(
        "min_max",
        "MinMaxCreator",
        ((2, 3, 6),),
        lambda x: (x.max(-1, keepdims=True), x.argmax(-1, keepdims=True).astype(np.int32)),
        {"keep_dims": 1},
    ),
    PluginFile(
        "leaky_ext",
        "LeakyCreator",
        ((2, 3, 5),),
        lambda x: (np.where(x > 0, x, x * np.float32(0.25)),),
        {"slope": 0.25},
    ),
    PluginFile(
        "channel_shift_ioext",
        "ChannelShiftCreator",
        ((2, 3, 4, 5),),
        lambda x: (x + np.array([1, 2, 1], x.dtype).reshape(1, 3, 1, 1),),
        {"shift": [1.0, 2.0]},
    ),
    PluginFile("clip_v2", "ClipCreator", ((2, 7),), lambda x: (np.clip(x, -0.5, 0.25),), {"low": -0.5, "high": 0.25}),
    PluginFile(
        "scaled_add", "ScaledAddCreator", ((2, 5), (2, 5)), lambda x, y: (np.float32(3) * x + y,), {"alpha": 3.0}
    ),
    PluginFile(
        "norm_family",
        "ScaledNormCreator",
        ((2, 5),),
        lambda x: (x / np.abs(x).max(-1, keepdims=True) * np.float32(2.5),),
        {"scale": 2.5},
    ),
    PluginFile("gate_context", "GateCreator", ((2, 5),), lambda x: (x * (x > 0.5),), {"threshold": 0.5}),
)


def import_file(path: Path) -> ModuleType:
    """Import a plugin file under a name of its own."""
    name = f"v2_file_{next(_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with importable_tensorrt():
        spec.loader.exec_module(module)
    return module


def make_fields(values: dict[str, Any]) -> dt.PluginFieldCollection:
    """Fields from plain values, each an array."""
    kinds = {np.dtype(np.int32): dt.PluginFieldType.INT32, np.dtype(np.float32): dt.PluginFieldType.FLOAT32}
    arrays = {name: np.atleast_1d(np.asarray(value)) for name, value in values.items()}
    plain = {n: a.astype(np.int32 if a.dtype.kind == "i" else np.float32) for n, a in arrays.items()}
    return dt.PluginFieldCollection([dt.PluginField(n, a, kinds[a.dtype]) for n, a in plain.items()])


def build_plan(
    file: PluginFile,
    add_layer: Callable[[Any, list[Any]], Any],
    *,
    is_dynamic: bool = True,
    config: Callable[[Any], None] | None = None,
) -> bytes:
    """A plan of a network with the layer alone; the batch varies from 1 to 4."""
    builder = dt.Builder()
    network = builder.create_network()
    kinds = itertools.cycle(file.types)
    shapes = [((-1 if is_dynamic else shape[0]), *shape[1:]) for shape in file.shapes]
    inputs = [network.add_input(f"x{i}", next(kinds), shape) for i, shape in enumerate(shapes)]
    layer = add_layer(network, inputs)
    for index in range(layer.num_outputs):
        layer.get_output(index).name = f"y{index}"
        network.mark_output(layer.get_output(index))
    options = builder.create_builder_config()
    if is_dynamic:
        profile = builder.create_optimization_profile()
        for i, shape in enumerate(file.shapes):
            profile.set_shape(f"x{i}", *((batch, *shape[1:]) for batch in (1, 2, 4)))
        options.add_optimization_profile(profile)
    if config is not None:
        config(options)
    return bytes(builder.build_serialized_network(network, options))


def run_plan(plan: bytes, registry_creators: list[Any], inputs: list[Array]) -> list[Array]:
    """Load a plan with these creators and run it once."""
    runtime = dt.Runtime()
    for creator in registry_creators:
        runtime.get_plugin_registry().register_creator(creator)
    with runtime.deserialize_cuda_engine(plan) as engine:
        found = engine(*inputs)
    return list(found.values()) if isinstance(found, dict) else [found]
