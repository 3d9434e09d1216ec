"""``dovetail compare``: are the results those of a reference, of another plan, or of a run that was saved?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.cli.answers import Document, Reply
from dovetail.cli.feeds import open_reader, take_first
from dovetail.cli.options import add_model_options, add_target, finish_command, non_negative_float
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings, apply_provider_options, read_settings
from dovetail.cli.shapes import ShapeBounds, format_shape, parse_shapes
from dovetail.cli.targets import StderrLogger, is_plan, load_engine, make_registry, open_engine, require_file
from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine
    from dovetail.tools.compare import CompareResult
    from dovetail.tools.compare_samples import RunSample

__all__ = ["EXIT_DIFFERENT", "add_reference", "declare", "read_model_inputs", "run"]

EXIT_DIFFERENT: Final = 4
"""A gate that was not passed."""
_AGAINST: Final = ("onnxruntime", "reference", "cpu")
_SHOWN_LAYERS: Final = 20
_SHOWN_SAMPLES: Final = 20


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    add_target(parser)
    parser.add_argument(
        "other",
        metavar="OTHER",
        nargs="?",
        help="what it is compared with, where that is not the model itself in ONNX Runtime: another plan, a model, the "
        ".npz that 'dovetail run --save-outputs' wrote, or for several samples its folder",
    )
    add_reference(parser)
    parser.add_argument(
        "--layers", action="store_true", help="compare every layer, and name the first one that diverges"
    )
    parser.add_argument(
        "--allow-nan",
        action="store_true",
        help="let outputs pass that have the same NaN and infinities on both sides and nothing else to compare",
    )
    parser.add_argument(
        "--validate", action="store_true", help="fail too when an output has NaN or infinity, and say where"
    )
    add_model_options(parser)
    add_build_settings(parser)


def add_reference(parser: argparse.ArgumentParser) -> None:
    """What a result is held against, and how closely."""
    parser.add_argument(
        "--against",
        choices=_AGAINST,
        help="what runs the model: ONNX Runtime over the same file (default), the evaluator of the onnx package, or "
        "Dovetail's own kernels with every pass off, the only one that knows plugins",
    )
    parser.add_argument(
        "--atol", type=non_negative_float, metavar="X", help="how far off an element may be (default: by type)"
    )
    parser.add_argument(
        "--rtol", type=non_negative_float, metavar="X", help="how far off in addition, as a share of the reference"
    )


def run(args: argparse.Namespace) -> Reply:
    """Compare; a difference is code 4."""
    shapes, path = parse_shapes(args.shapes), require_file(args.target)
    if args.other is None and not is_plan(path):
        result = _compare_model(path, args, shapes)
    else:
        result = _compare_engine(path, args, shapes)
    document = {"model": args.target, **result.to_dict()}
    is_passed = result.is_close and result.is_valid
    return Reply(document=document, show=_show, exit_code=0 if is_passed else EXIT_DIFFERENT)


def _compare_model(path: Path, args: argparse.Namespace, shapes: Mapping[str, ShapeBounds]) -> CompareResult:
    """A model with itself, run by a reference."""
    settings, logger = read_settings(args), StderrLogger()
    apply_provider_options(args.provider_option)

    from dovetail.build.config import BuilderConfig
    from dovetail.tools.compare import compare_models

    return compare_models(
        path,
        against=args.against or _AGAINST[0],
        providers=settings.providers,
        shapes=shapes or None,
        inputs=partial(open_reader, args=args, shapes=shapes, logger=logger),
        atol=args.atol,
        rtol=args.rtol,
        layers=args.layers,
        allow_nan=args.allow_nan,
        validate=args.validate,
        config=settings.apply(BuilderConfig()),
        registry=make_registry(args.plugins),
        override=settings.override,
        logger=logger,
    )


def _compare_engine(path: Path, args: argparse.Namespace, shapes: Mapping[str, ShapeBounds]) -> CompareResult:
    """A plan or a model with another plan, a model that a reference runs, or saved outputs."""
    if args.other is None:
        fix = f"name what to compare it with: its model, another plan, or saved outputs, as in '{path} model.onnx'"
        raise UsageError("a plan has no model in it that a reference could run", where=f"'{path}'", fix=fix)
    if args.layers:
        expected = "a model, and no other plan, model or outputs"
        raise UsageError("layers are compared of one model", where="--layers", expected=expected)

    from dovetail.inputs.specs import specs_of_manifest
    from dovetail.tools.compare import compare_engine
    from dovetail.tools.differences import Tolerance

    logger = StderrLogger()
    with open_engine(args, shapes, logger) as engine:
        specs = specs_of_manifest(engine.manifest)
        reader = open_reader(specs, args, shapes, logger)
        with _open_other(args, engine, is_single=reader.is_single) as other:
            tolerance = Tolerance(
                atol=args.atol, rtol=args.rtol, allow_nan=args.allow_nan, layer_types=other.layer_types
            )
            return compare_engine(
                engine,
                other.run,
                reader,
                against=other.name,
                tolerance=tolerance,
                validate=args.validate,
                strict=args.strict,
                logger=logger,
            )


class _Reference(NamedTuple):
    """The other side."""

    run: RunSample
    name: str
    layer_types: frozenset[str] = frozenset()


@contextmanager
def _open_other(args: argparse.Namespace, engine: Engine, *, is_single: bool) -> Iterator[_Reference]:
    """What gives the other outputs."""
    from dovetail.tools.compare import types_of_layers
    from dovetail.tools.compare_samples import by_feeds
    from dovetail.tools.engine_runs import EngineRunner

    path = Path(args.other)
    if path.is_dir() or path.suffix == ".npz":
        _refuse_against(args)
        yield _Reference(_read_saved(path, engine, is_single=is_single), args.other)
    elif is_plan(require_file(args.other, expected="a plan, a model, or a .npz file of outputs")):
        _refuse_against(args)
        with load_engine(path, args, StderrLogger()) as other:
            _require_same_inputs(engine, [tensor.name for tensor in other.manifest.inputs], args.other)
            yield _Reference(by_feeds(EngineRunner(other).run), args.other, types_of_layers(other.manifest))
    else:
        from dovetail.inputs.specs import specs_of_model
        from dovetail.tools.sides import DovetailSide, make_reference, read_source

        _require_same_inputs(engine, [spec.name for spec in specs_of_model(read_source(path))], args.other)
        name = args.against or _AGAINST[0]
        like = DovetailSide(registry=make_registry(args.plugins), override=read_settings(args).override)
        with make_reference(name, like).open(path) as run_other:
            yield _Reference(by_feeds(run_other), f"{args.other} in {name}")


def _refuse_against(args: argparse.Namespace) -> None:
    if args.against is not None:
        raise UsageError("this has no effect: nothing runs a model", where="--against", got=f"'{args.other}'")


def _read_saved(path: Path, engine: Engine, *, is_single: bool) -> RunSample:
    """Saved outputs: a file for one sample, a folder with a file of the name of each for several."""
    from dovetail.inputs.specs import specs_of_outputs
    from dovetail.tools.results.saved_outputs import read_outputs

    if path.is_dir() == is_single:
        expected = "a .npz file for one sample" if is_single else "a folder with a .npz file for each sample"
        raise UsageError("the saved outputs do not go with the inputs", where=f"'{path}'", expected=expected)
    specs = specs_of_outputs(engine.manifest)
    return lambda sample, _: read_outputs(path if is_single else path / f"{sample}.npz", specs)


def _require_same_inputs(engine: Engine, theirs: Sequence[str], where: str) -> None:
    ours = [tensor.name for tensor in engine.manifest.inputs]
    if set(ours) != set(theirs):
        expected, got = ", ".join(ours), ", ".join(theirs)
        raise UsageError("this has other inputs", where=f"'{where}'", expected=expected, got=got)


def read_model_inputs(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The values that a command line has for inputs of a model, of the first sample where there are several."""
    if not args.inputs:
        return {}
    from dovetail.inputs.specs import specs_of_model
    from dovetail.tools.sides import read_source

    reader = open_reader(specs_of_model(read_source(path)), args, parse_shapes(args.shapes), StderrLogger())
    return take_first(reader, command="this").given


# for people


def _show(document: Document, screen: Screen) -> None:
    screen.line(f"{document['model']}: dovetail ({', '.join(document['providers'])}) against {document['against']}")
    for name, shape in document["inputs"].items():
        screen.line(f"input '{name}': {_shape_text(shape)}")
    count = len(document["samples"])
    screen.title(f"Outputs, each in the worst of {count} samples" if count else "Outputs")
    _show_tensors(document["outputs"], screen)
    _show_samples(document["samples"], screen)
    if document["layers"] is not None:
        _show_layers(document["layers"], screen)
    if document["divergence"] is not None:
        _show_divergence(document["divergence"], screen)
    for note in document["notes"]:
        screen.line(f"note: {note}")
    for each in document["odd"] or ():
        screen.line(each["text"])
    screen.title(_verdict(document))
    if document["odd"] is not None:
        bad = "NOT VALID: outputs have NaN or infinity"
        screen.line(bad if document["odd"] else "valid: every element of the outputs is finite")


def _show_samples(samples: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    """The samples that differ, by name."""
    wrong = [sample["name"] for sample in samples if not sample["is_close"]]
    for name in wrong[:_SHOWN_SAMPLES]:
        screen.line(f"sample '{name}' differs")
    if len(wrong) > _SHOWN_SAMPLES:
        screen.line(f"... and {len(wrong) - _SHOWN_SAMPLES} more; --json has all")


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
