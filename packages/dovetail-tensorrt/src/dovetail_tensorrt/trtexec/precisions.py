"""The types that flags ask for: half precision, 8 bits with ranges, and the types of single layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import dovetail
from dovetail.errors import BuildError, InputError, UsageError
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.specs import specs_of_model
from dovetail.loggers import Severity
from dovetail_tensorrt.trtexec.words import Options

__all__ = ["check_layer_types", "choose_precision"]

_HALVES: Final = ("fp16", "bf16")
_BYTES: Final = ("int8", "fp8")
_TYPES: Final = ("fp32", *_HALVES, *_BYTES)
_CONSTRAINTS: Final = ("none", "prefer", "obey")
_MADE_UP: Final = (
    "there is no --calib, so ranges are those of made-up inputs: times are what they will be, results are not"
)


def choose_precision(options: Options, model: Any, shapes: Mapping[str, Any], logger: Any) -> Any:
    """What flags ask of the types of a model; None where they ask for nothing.

    Args:
        options: The flags.
        model: The model as a message, without data beside it.
        shapes: Input -> the shape to make inputs up with.
        logger: Told what was made up, and which flags have no effect.
    """
    wanted = _find_types(options, model)
    for text in _explain_idle(options, wanted):
        logger.log(Severity.WARNING, text)
    if not wanted:
        return None
    half = next((name for name in _HALVES if name in wanted), None)
    quantized = next((name for name in _BYTES if name in wanted), None)
    given: dict[str, Any] = {"float_type": half, "quantized": quantized, "keep": _find_kept(options, model, wanted)}
    if quantized is not None:
        given |= _find_ranges(options, model, shapes, logger)
    return dovetail.PrecisionOptions(**given)


def _find_types(options: Options, model: Any) -> list[str]:
    """The narrow types; 8 bits are left to a model that has Q/DQ of its own."""
    if options.has("stronglyTyped"):
        return []
    halves = [name for name in _HALVES if options.has(name)] or (["fp16"] if options.has("best") else [])
    is_quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    both = [name for name in _BYTES if options.has(name)] if not is_quantized else []
    if len(both) > 1:
        raise UsageError("--int8 and --fp8 exclude each other", where="trtexec", expected="one of them")
    if options.has("best") and options.has("calib") and not is_quantized:
        both = both or ["int8"]
    return [*halves[:1], *both]


def _explain_idle(options: Options, wanted: Sequence[str]) -> Iterator[str]:
    """Why flags for types that were given have no effect beside the others."""
    if options.has("stronglyTyped"):
        for name in (*_HALVES, *_BYTES, "best"):
            if options.has(name):
                yield f"--{name} has no effect: with --stronglyTyped layers keep the types that the model has"
    elif options.has("fp16") and options.has("bf16"):
        yield "--bf16 has no effect beside --fp16: a plan has one type of 16 bits"
    if options.has("calib") and not any(name in wanted for name in _BYTES):
        yield "--calib has no effect: nothing is quantized with these flags, or the model has Q/DQ of its own"


def _find_ranges(options: Options, model: Any, shapes: Mapping[str, Any], logger: Any) -> dict[str, Any]:
    if options.has("calib"):
        path = Path(options.get("calib"))
        if not path.is_file():
            raise InputError(
                "there is no such calibration cache",
                where="--calib",
                got=str(path),
                fix="write it with 'dovetail build MODEL --int8 --calib-data FOLDER --calib-cache FILE'",
            )
        return {"cache": path, "compare": False}
    import onnx_ir as ir  # a plan is loaded and run without it

    logger.log(Severity.WARNING, _MADE_UP)
    specs = specs_of_model(ir.from_proto(model))
    return {"calibration": [make_feeds(specs, shapes=shapes)], "tolerance": float("inf"), "compare": False}


# types of single layers


def _read_constraints(options: Options) -> str:
    text = str(options.get("precisionConstraints", "none"))
    if text not in _CONSTRAINTS:
        expected = ", ".join(_CONSTRAINTS)
        raise UsageError("there is no such choice", where="--precisionConstraints", expected=expected, got=text)
    if options.has("layerPrecisions") and text == "none":
        raise UsageError(
            "--layerPrecisions can have no effect without --precisionConstraints",
            where="trtexec",
            fix="add --precisionConstraints=obey or prefer",
        )
    return text


def _layer_types(options: Options, names: Sequence[str]) -> dict[str, str]:
    """Layer -> the type that is asked for; a name says more than a pattern, and a later word than an earlier one."""
    _read_constraints(options)
    found: dict[str, str] = {}
    asked: Mapping[str, str] = options.get("layerPrecisions", {})
    for pattern, kind in sorted(asked.items(), key=lambda item: "*" not in item[0]):
        if kind not in _TYPES:
            raise UsageError("there is no such type", where="--layerPrecisions", expected=", ".join(_TYPES), got=kind)
        matching = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not matching:
            raise UsageError(f"no layer is called '{pattern}'", where="--layerPrecisions")
        found |= dict.fromkeys(matching, kind)
    return found


def _find_kept(options: Options, model: Any, wanted: Sequence[str]) -> tuple[str, ...]:
    """The layers that are to have FP32, as patterns that fit nothing else."""
    types = _layer_types(options, [node.name for node in model.graph.node if node.name])
    for name, kind in types.items():
        if kind not in ("fp32", *wanted):
            raise UsageError(
                f"layer '{name}' is to have {kind}, which no flag allows",
                where="--layerPrecisions",
                fix=f"add --{kind}",
            )
    kept = [name for name, kind in types.items() if kind == "fp32"]
    return tuple("".join(f"[{char}]" if char in "*?[" else char for char in name) for name in kept)


def check_layer_types(options: Options, records: Iterable[Any], logger: Any) -> None:
    """Compare the types that layers have with those that were asked for.

    Raises:
        BuildError: One is another, and types are to be obeyed.
    """
    if not options.has("layerPrecisions"):
        return
    found = {record.layer: record for record in records}
    for name, kind in _layer_types(options, list(found)).items():
        if found[name].type != kind:
            what = f"layer '{name}' is to have {kind} and has {found[name].type}: {found[name].reason}"
            if _read_constraints(options) == "obey":
                raise BuildError(what, where="--layerPrecisions", fix="ask for another type, or prefer types")
            logger.log(Severity.WARNING, what)
