"""The networks of the rows in PyTorch, with random weights that all matter, and what they are exported to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.decoding import make_decoder, make_step_inputs, name_ports
from benchmarks.gpu.rows import Row

__all__ = ["export_row", "make_inputs", "make_network"]

BERT_TOKENS, GPT2_TOKENS, VOCABULARY = 128, 512, 30000


def make_network(row: Row) -> Any:
    """The network, in float32 on the host: equal in every process."""
    import torch

    torch.manual_seed(0)
    network = _MAKERS[row.model]().eval()
    with torch.no_grad():
        _scatter_constants(network)
        _collect_statistics(network)
    return network.requires_grad_(False)


def make_inputs(row: Row) -> tuple[Any, ...]:
    """What a run gets: pictures of normal numbers, or numbers of tokens."""
    import torch

    torch.manual_seed(1)
    if row.model == "gpt2_decode":
        return make_step_inputs(row.batch)
    tokens = {"bert_base": BERT_TOKENS, "gpt2": GPT2_TOKENS}.get(row.model)
    if tokens is None:
        return (torch.randn(row.batch, 3, 224, 224).half(),)
    return (torch.randint(0, VOCABULARY, (row.batch, tokens)),)


def export_row(row: Row, folder: Path) -> dict[str, Any]:
    """Write the model, its inputs, and its outputs by PyTorch in float32 on the device."""
    import numpy as np
    import onnx
    import torch

    from tests.cuda.skeletons import strip

    network, inputs = make_network(row).half(), make_inputs(row)
    with torch.no_grad():
        torch.onnx.export(
            network,
            inputs,
            folder / "model.onnx",
            dynamo=True,
            external_data=True,
            verbose=False,
            optimize=True,
            **_find_export_options(row),
        )
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        wide = [x.cuda().float() if x.is_floating_point() else x.cuda() for x in inputs]
        half = _take_first(network.cuda()(*(x.cuda() for x in inputs))).double()
        reference = _take_first(network.float()(*wide)).double()
    graph = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    (folder / "skeleton.onnx.xz").write_bytes(strip(graph))
    np.savez(folder / "inputs.npz", *(x.numpy() for x in inputs))
    np.savez(folder / "reference.npz", reference.cpu().numpy())
    return {"torch_error": float((half - reference).norm() / reference.norm())}


def _find_export_options(row: Row) -> dict[str, Any]:
    """Names, and the operator that adds to a cache, which is new in opset 24."""
    if row.model != "gpt2_decode":
        return {}
    inputs, outputs = name_ports()
    return {"input_names": inputs, "output_names": outputs, "opset_version": 24}


def _take_first(results: Any) -> Any:
    """The result that is compared."""
    return results[0] if isinstance(results, tuple) else results


def _scatter_constants(network: Any) -> None:
    """Make random what is initialised to one number: biases, norms, heads, scales of layers.

    With zeros for the last product or 1e-6 for the scale of each block, no error of a block would show in the result.
    """
    import torch

    for parameter in network.parameters():
        if parameter.numel() == 1 or float(parameter.std()) < 1e-5:
            parameter.add_(0.1 * torch.randn_like(parameter))


def _collect_statistics(network: Any) -> None:
    """Give batch normalizations the size of what they get, so that fifty layers stay in the range of float16.

    The mean stays in: for random weights it is nearly all there is, and without it the rest, made large again by each
    layer, would be mostly what float16 rounds off.
    """
    import torch

    def measure(norm: Any, inputs: tuple[Any, ...]) -> None:
        norm.running_var.copy_(inputs[0].square().mean((0, 2, 3)))

    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    if norms:
        network(torch.randn(2, 3, 224, 224))
    for hook in hooks:
        hook.remove()


def _make_vision(name: str) -> Any:
    import torchvision

    return getattr(torchvision.models, name)(weights=None)


def _make_bert() -> Any:
    from transformers import BertConfig, BertModel

    return _wrap(BertModel(BertConfig(), add_pooling_layer=False))


def _make_gpt2() -> Any:
    from transformers import GPT2Config, GPT2Model

    return _wrap(GPT2Model(GPT2Config(use_cache=False)), use_cache=False)


def _wrap(model: Any, **options: Any) -> Any:
    """A network from the numbers of tokens to the last hidden state."""
    import torch

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(ids, **options).last_hidden_state

    return LastHiddenState()


_MAKERS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: _make_vision("resnet50"),
    "mobilenet_v3_large": lambda: _make_vision("mobilenet_v3_large"),
    "convnext_tiny": lambda: _make_vision("convnext_tiny"),
    "vit_b_16": lambda: _make_vision("vit_b_16"),
    "bert_base": _make_bert,
    "gpt2": _make_gpt2,
    "gpt2_decode": make_decoder,
}
