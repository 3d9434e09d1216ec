"""``dovetail compare``: does Dovetail compute what a reference computes, and if not, which layer is the first?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.feeds import read_inputs
from dovetail.cli.options import add_model_options, add_plugins, finish_command, non_negative_float
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings, apply_provider_options, read_settings
from dovetail.cli.shapes import format_shape, parse_shapes
from dovetail.cli.targets import StderrLogger, make_registry, require_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EXIT_DIFFERENT", "add_reference", "declare", "read_model_inputs", "run"]

EXIT_DIFFERENT: Final = 4
"""A gate that was not passed."""
_AGAINST: Final = ("onnxruntime", "reference", "cpu")
_SHOWN_LAYERS: Final = 20


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("model", metavar="MODEL", help="the ONNX model")
    add_reference(parser)
    parser.add_argument(
        "--layers", action="store_true", help="compare every layer, and name the first one that diverges"
    )
    parser.add_argument(
        "--allow-nan",
        action="store_true",
        help="let outputs pass that have the same NaN and infinities on both sides and nothing else to compare",
    )
    add_model_options(parser)
    add_plugins(parser)
    add_build_settings(parser)


def add_reference(parser: argparse.ArgumentParser) -> None:
    """What a result is held against, and how closely."""
    parser.add_argument(
        "--against",
        choices=_AGAINST,
        default=_AGAINST[0],
        help="ONNX Runtime over the same file (default), the evaluator of the onnx package, or Dovetail's own kernels "
        "with every pass off, the only one that knows plugins",
    )
    parser.add_argument(
        "--atol", type=non_negative_float, metavar="X", help="how far off an element may be (default: by type)"
    )
    parser.add_argument(
        "--rtol", type=non_negative_float, metavar="X", help="how far off in addition, as a share of the reference"
    )


def run(args: argparse.Namespace) -> Reply:
    """Compare; a difference is code 4."""
    shapes, settings = parse_shapes(args.shapes), read_settings(args)
    path = require_file(args.model)
    apply_provider_options(args.provider_option)

    from dovetail.build.config import BuilderConfig
    from dovetail.tools.compare import compare_models

    result = compare_models(
        path,
        against=args.against,
        providers=settings.providers,
        shapes=shapes or None,
        inputs=read_model_inputs(path, args.inputs),
        seed=args.seed,
        atol=args.atol,
        rtol=args.rtol,
        layers=args.layers,
        allow_nan=args.allow_nan,
        config=settings.apply(BuilderConfig()),
        registry=make_registry(args.plugins),
        override=settings.override,
        logger=StderrLogger(),
    )
    document = {"model": args.model, **result.to_dict()}
    return Reply(document=document, show=_show, exit_code=0 if result.is_close else EXIT_DIFFERENT)


def read_model_inputs(path: Path, files: Sequence[str]) -> dict[str, Any]:
    """The values that files have for inputs of a model."""
    if not files:
        return {}
    from dovetail.tools.feeds import specs_of_model
    from dovetail.tools.sides import read_source

    return read_inputs(files, specs_of_model(read_source(path)))


# for people


def _show(document: Document, screen: Screen) -> None:
    screen.line(f"{document['model']}: dovetail ({', '.join(document['providers'])}) against {document['against']}")
    for name, shape in document["inputs"].items():
        screen.line(f"input '{name}': {_shape_text(shape)}")
    screen.title("Outputs")
    _show_tensors(document["outputs"], screen)
    if document["layers"] is not None:
        _show_layers(document["layers"], screen)
    if document["divergence"] is not None:
        _show_divergence(document["divergence"], screen)
    for note in document["notes"]:
        screen.line(f"note: {note}")
    screen.title(_verdict(document))


def _shape_text(shape: Any) -> str:
    if shape is None:
        return "nothing"
    is_sequence = bool(shape) and isinstance(shape[0], list)
    return ", ".join(map(format_shape, shape)) if is_sequence else format_shape(shape)


def _show_tensors(tensors: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    headers = ("", "name", "type", "shape", "max abs", "mean abs", "max rel", "cosine")
    screen.table(headers, [_tensor_row(tensor) for tensor in tensors], right=range(4, 8))
    for tensor in tensors:
        if tensor["reason"]:
            screen.line(f"'{tensor['name']}': {tensor['reason']}{_odd_text(tensor)}")
        if tensor["note"]:
            screen.line(f"'{tensor['name']}': {tensor['note']}")
        if tensor["worst_index"] is not None and not tensor["is_close"]:
            screen.line(f"'{tensor['name']}': {_worst_text(tensor)}")


def _tensor_row(tensor: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        "pass" if tensor["is_close"] else "FAIL",
        tensor["name"],
        tensor["dtype"],
        format_shape(tensor["shape"]),
        *(_number(tensor[key], ".3g") for key in ("max_abs", "mean_abs", "max_rel")),
        _number(tensor["cosine"], ".6f"),
    )


def _worst_text(tensor: Mapping[str, Any]) -> str:
    place = ", ".join(map(str, tensor["worst_index"]))
    ours, theirs = (_element_text(tensor[f"worst_{side}"]) for side in ("candidate", "reference"))
    return f"worst at [{place}]: {ours} here, {theirs} in the reference"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _element_text(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _odd_text(tensor: Mapping[str, Any]) -> str:
    texts = [
        f"{name} {ours} here and {theirs} there"
        for name, (ours, theirs) in (("NaN", tensor["num_nan"]), ("infinity", tensor["num_inf"]))
        if ours or theirs
    ]
    return f" ({'; '.join(texts)})" if texts else ""


def _show_layers(layers: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    wrong = [layer for layer in layers if _differs(layer)]
    screen.title(f"Layers: {len(layers)}, of which {len(wrong)} differ")
    shown = wrong[:_SHOWN_LAYERS] or _worst_layers(layers)
    rows = [(layer["index"], layer["name"], layer["op"], *_layer_errors(layer)) for layer in shown]
    screen.table(("#", "layer", "op", "max abs", "max rel", "cosine"), rows, right=(0, 3, 4, 5))
    if len(wrong) > len(shown):
        screen.line(f"... and {len(wrong) - len(shown)} more; --json has all")


def _differs(found: Mapping[str, Any]) -> bool:
    """Whether a tensor or layer is unlike the reference's, and not merely without anything to compare."""
    return not found["is_close"] and found["is_verified"]


def _worst_layers(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Where nothing differs, the few with the largest errors."""
    return sorted(layers, key=lambda layer: _largest(layer, "max_rel") or 0.0, reverse=True)[:3]


def _largest(layer: Mapping[str, Any], key: str) -> float | None:
    return max((output[key] for output in layer["outputs"] if output[key] is not None), default=None)


def _layer_errors(layer: Mapping[str, Any]) -> tuple[str, ...]:
    cosine = min((output["cosine"] for output in layer["outputs"] if output["cosine"] is not None), default=None)
    return (*(_number(_largest(layer, key), ".3g") for key in ("max_abs", "max_rel")), _number(cosine, ".6f"))


def _show_divergence(divergence: Mapping[str, Any], screen: Screen) -> None:
    layer = divergence["layer"]
    op = f"{layer['domain']}::{layer['op']}" if layer["domain"] else layer["op"]
    screen.title(f"First to diverge: layer {layer['index']}, '{layer['name']}' ({op})")
    errors = {tensor["name"]: tensor for tensor in divergence["input_errors"]}
    rows = [
        (
            found["name"],
            found["dtype"],
            format_shape(found["shape"]),
            *(_element_text(found[key]) for key in ("min", "max", "mean")),
            _number(errors[found["name"]]["max_abs"], ".3g") if found["name"] in errors else "-",
        )
        for found in divergence["inputs"]
    ]
    if rows:
        screen.table(("input", "type", "shape", "min", "max", "mean", "error"), rows, right=(3, 4, 5, 6))
    _show_tensors(layer["outputs"], screen)


def _verdict(document: Document) -> str:
    outputs = document["outputs"]
    count, close = len(outputs), sum(output["is_close"] for output in outputs)
    if document["is_close"]:
        blank = sum(not output["num_compared"] for output in outputs)
        return f"close: {close} of {count} outputs" + (f", {blank} of them with nothing to compare" if blank else "")
    layers = sum(_differs(layer) for layer in document["layers"] or ())
    more = f", {layers} of {len(document['layers'])} layers" if layers else ""
    differing = sum(_differs(output) for output in outputs)
    if differing or more:
        return f"DIFFERENT: {differing} of {count} outputs{more}"
    have = "has" if count - close == 1 else "have"
    return f"NOT VERIFIED: {count - close} of {count} outputs {have} nothing finite to compare; --allow-nan lets pass"
