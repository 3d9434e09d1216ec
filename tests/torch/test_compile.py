"""Modules of PyTorch become engines in one line, custom operators included."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import dovetail as dt

pytestmark = pytest.mark.slow  # a notebook shows the same in short


class Small(torch.nn.Module):
    """A convolution, a mean and a product, with an argument that has a default."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, image: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return torch.softmax(self.head(torch.relu(self.conv(image)).mean((2, 3))) * scale, -1)


class Pair(torch.nn.Module):
    """Two inputs, two outputs."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a * b


@torch.library.custom_op("torchtest::window", mutates_args=())
def _window(
    x: torch.Tensor, bias: torch.Tensor | None, size: int, *, gain: float = 1.0, negate: bool = False
) -> torch.Tensor:
    result = x.unfold(1, size, 1).mean(-1) * gain * (-1 if negate else 1)
    return result if bias is None else result + bias


@_window.register_fake
def _shape(
    x: torch.Tensor, bias: torch.Tensor | None, size: int, *, gain: float = 1.0, negate: bool = False
) -> torch.Tensor:
    return x.new_empty((x.shape[0], x.shape[1] - size + 1))


class Windows(torch.nn.Module):
    """A custom operator between operators of PyTorch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchtest.window(torch.relu(x), None, 3, negate=True) + 1


def _agree(engine: dt.Engine, module: torch.nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        expected = module(*inputs)
    np.testing.assert_allclose(engine(*inputs), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["tuple", "list", "tensor", "mapping"])
def test_example_inputs_have_the_forms_of_calls(form: str) -> None:
    module, image = Small().eval(), torch.randn(2, 3, 8, 8)
    examples = {"tuple": (image,), "list": [image], "tensor": image, "mapping": {"image": image}}
    with dt.compile(module, examples[form]) as engine:
        assert engine.input_names == ["image"]
        assert engine.name == "Small"
        _agree(engine, module, torch.randn(2, 3, 8, 8))


def test_dimensions_that_shapes_vary_are_dynamic() -> None:
    module = Small().eval()
    bounds = ((1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 32))
    with dt.compile(module, torch.randn(2, 3, 8, 8), shapes={"image": bounds}) as engine:
        assert tuple(engine.get_tensor_shape("image")) == (-1, 3, 8, -1)
        for shape in ((1, 3, 8, 8), (7, 3, 8, 20)):
            _agree(engine, module, torch.randn(shape))


def test_several_inputs_and_outputs() -> None:
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    with dt.compile(Pair().eval(), (a, b)) as engine:
        total, product = engine({"b": b, "a": a}).values()
    np.testing.assert_allclose(total, (a + b).numpy())
    np.testing.assert_allclose(product, (a * b).numpy())


def test_an_exported_program_is_taken_as_it_is() -> None:
    module, example = Small().eval(), torch.randn(2, 3, 8, 8)
    program = torch.export.export(module, (example,))
    with dt.compile(program) as engine:
        _agree(engine, module, example)
    with pytest.raises(dt.UsageError, match="an exported program has its inputs already"):
        dt.compile(program, example)


def test_a_custom_operator_is_a_plugin_layer() -> None:
    module = Windows().eval()
    with pytest.raises(dt.UnsupportedOpError, match="no creator is registered for plugin 'window'"):
        dt.compile(module, torch.randn(2, 8))

    @dt.layer("torchtest::window", shape=lambda x, *, size, gain, negate: (x[0], x[1] - size + 1))
    def window(x: Any, *, size: int, gain: float = 1.0, negate: int = 0) -> Any:
        means = np.lib.stride_tricks.sliding_window_view(x, size, axis=1).mean(axis=-1)
        return means * gain * (-1 if negate else 1)

    with dt.compile(module, torch.randn(2, 8), shapes={"x": ((1, 8), (2, 8), (4, 32))}) as engine:
        assert window.name == "window"
        for shape in ((1, 8), (3, 20)):
            _agree(engine, module, torch.randn(shape))


def _fails(call: Callable[[], object], kind: type[dt.DovetailError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_mistakes_are_told() -> None:
    module, image = Small().eval(), torch.randn(2, 3, 8, 8)
    bounds = ((1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 8))
    _fails(lambda: dt.compile(Small(), image), dt.UsageError, r"Small is in training mode\n.*module\.eval\(\)")
    _fails(lambda: dt.compile(module), dt.UsageError, r"there are none\n.*compile\(module, \(x,\)\)")
    _fails(lambda: dt.compile(module, (image,) * 3), dt.UsageError, r"do not fit Small\.forward: too many")
    _fails(lambda: dt.compile(b"", image), dt.UsageError, "only a module of PyTorch.*got a bytes as model")
    _fails(lambda: dt.compile(module, image[0], shapes={"image": bounds}), dt.UsageError, "expected 4, got 3")
    _fails(lambda: dt.compile(module, image[:1], shapes={"image": bounds}), dt.ModelError, "2 or more in examples")


def test_what_torch_cannot_export_is_one_error() -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if float(x.sum()) > 0 else -x

    with pytest.raises(dt.ModelError, match=r"torch\.export cannot trace the module: \w+: .+\n  fix: see what"):
        dt.compile(Branches().eval(), torch.randn(2, 3))


def test_scripted_modules_and_arrays_as_examples_are_refused() -> None:
    linear = torch.nn.Linear(3, 3).eval()
    with warnings.catch_warnings():  # PyTorch says that nobody should make one any more
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(linear, torch.rand(2, 3))  # type: ignore[no-untyped-call]
    with pytest.raises(dt.UsageError, match="a module of TorchScript"):
        dt.compile(scripted, (torch.rand(2, 3),))
    with pytest.raises(dt.UsageError, match=r"an example is an array of NumPy(.|\n)*torch.from_numpy"):
        dt.compile(linear, (np.ones((2, 3), np.float32),))
