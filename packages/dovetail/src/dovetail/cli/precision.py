"""The types that a build is to give layers, from the words of a command line, and what is told of them."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document
from dovetail.cli.options import add_image
from dovetail.cli.screen import Screen
from dovetail.cli.shapes import parse_shapes
from dovetail.errors import InputError, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.build.config import BuilderConfig
    from dovetail.build.precision.options import PrecisionOptions
    from dovetail.inputs.reader import InputReader
    from dovetail.loggers import ILogger

__all__ = ["add_precision_options", "explain_skipped", "precision_texts", "read_precision", "show_precision"]

_SHOWN: Final = 6
_FLAGS: Final = {"fp16": "float_type", "bf16": "float_type", "int8": "quantized", "fp8": "quantized"}


def add_precision_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that change the types of a model."""
    group = parser.add_argument_group("precision", "the types that layers compute in; see docs/precision.md")
    floats, quantized = group.add_mutually_exclusive_group(), group.add_mutually_exclusive_group()
    floats.add_argument("--fp16", action="store_true", help="compute in half precision where nothing speaks against it")
    floats.add_argument("--bf16", action="store_true", help="compute in bfloat16 where nothing speaks against it")
    quantized.add_argument(
        "--int8", action="store_true", help="quantize products and convolutions; needs --calib-data or --calib-cache"
    )
    quantized.add_argument("--fp8", action="store_true", help="the same in 8-bit floats (E4M3)")
    group.add_argument("--weights", metavar="TYPE", help="int4 or int8: quantize only the weights of matrix products")
    group.add_argument("--block", type=int, metavar="N", help="how many weights share a scale, for --weights (32)")
    group.add_argument(
        "--calib-data",
        nargs="+",
        metavar="INPUT",
        help="inputs to find ranges with, as run takes them: a folder of .npz, .npy or images, or loader.py:load_data",
    )
    add_image(group)
    group.add_argument("--calib-cache", metavar="FILE", help="keep calibrated ranges here, and use those that are here")
    group.add_argument(
        "--calib-method", metavar="HOW", help="error (default), entropy or minmax: how int8 ranges are found"
    )
    group.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help="how far outputs may be off by --int8 or --fp8 (0.05): layers that cost most stay in fp32; inf keeps none",
    )
    group.add_argument(
        "--keep", action="append", default=[], metavar="PATTERN", help="layers that stay in fp32, such as 'head/*'"
    )
    group.add_argument("--keep-op", action="append", default=[], metavar="OP", help="an operator that stays in fp32")
    group.add_argument(
        "--io-types",
        action="append",
        default=[],
        metavar="NAME:TYPE[,...]",
        help="fp16, bf16 or fp32 for inputs and outputs; the others keep their types",
    )
    group.add_argument("--no-compare", action="store_true", help="do not compare with the fp32 model after the build")


def read_precision(args: argparse.Namespace, model: ir.Model, logger: ILogger) -> PrecisionOptions | None:
    """What a command line asks for; None where it asks for nothing.

    Args:
        args: The command line.
        model: What is built.
        logger: Who is told of files that are no inputs.

    Raises:
        UsageError: An option cannot be read, or can have no effect.
    """
    from dovetail.build.precision.options import PrecisionOptions

    types: dict[str, Any] = {kind: flag for flag, kind in _FLAGS.items() if getattr(args, flag)}
    given = {"weights": args.weights, "block": args.block, "method": args.calib_method, "cache": args.calib_cache}
    given["tolerance"] = args.tolerance
    types |= {name: value for name, value in given.items() if value is not None}
    io_types = _read_io_types(args.io_types)
    _refuse_idle(args, has_io_types=bool(io_types))
    if not types and not io_types:
        return None
    batches = None if args.calib_data is None else _open_batches(args, model, logger)
    return PrecisionOptions(
        **types,
        keep=tuple(args.keep),
        keep_ops=tuple(args.keep_op),
        io_types=io_types,
        calibration=batches,
        compare=not args.no_compare,
    )


class _Batches:
    """Samples that have an array for every input: what is made up would decide ranges."""

    def __init__(self, reader: InputReader) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for sample in self._reader.samples():
            missing = [spec.name for spec in self._reader.specs if spec.name not in sample.given]
            if missing:
                raise InputError(f"there is no array for input '{missing[0]}'", where=f"--calib-data: {sample.name}")
            yield self._reader.complete(sample)


def _open_batches(args: argparse.Namespace, model: ir.Model, logger: ILogger) -> _Batches:
    from dovetail.cli.feeds import read_images, refuse_idle_images, tell_skipped
    from dovetail.inputs.reader import open_inputs
    from dovetail.inputs.specs import specs_of_model

    specs = specs_of_model(model)
    images = read_images(args.image, [spec.name for spec in specs])
    refuse_idle_images(images, args.calib_data, "--calib-data")
    shapes = {name: bounds.opt for name, bounds in parse_shapes(args.shapes).items()}
    reader = open_inputs(args.calib_data, specs, images=images, shapes=shapes, option="--calib-data")
    tell_skipped(reader, logger, "--calib-data", strict=args.strict)
    return _Batches(reader)


def _refuse_idle(args: argparse.Namespace, *, has_io_types: bool) -> None:
    """An option that goes with another asks for nothing alone."""
    types = ("--fp16", "--bf16", "--int8", "--fp8", "--weights")
    needs = {
        "--block": ("--weights",),
        "--calib-method": ("--int8",),
        "--calib-cache": ("--int8", "--fp8"),
        "--calib-data": types,
        "--image": ("--calib-data",),
        "--keep": types,
        "--keep-op": types,
        "--no-compare": () if has_io_types else types,
    }
    for option, others in needs.items():
        if others and _is_given(args, option) and not any(_is_given(args, other) for other in others):
            what = f"this can have no effect without {' or '.join(others)}"
            raise UsageError(what, where=option, fix="add it, or leave this out")


def _is_given(args: argparse.Namespace, option: str) -> bool:
    return getattr(args, option[2:].replace("-", "_")) not in (None, False, [])


def _read_io_types(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, colon, kind = part.rpartition(":")
        if not (name and colon and kind):
            raise UsageError("not a name and a type", where=f"--io-types {part!r}", expected="NAME:TYPE, as in x:fp16")
        found[name] = kind
    return found


# what is told


def precision_texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many layers have each type, and for those that were kept, by the reason."""
    kinds = Counter(row["type"] for row in rows)
    texts = [", ".join(f"{count} layer(s) in {kind}" for kind, count in kinds.most_common())] if rows else []
    reasons = Counter((row["type"], row["reason"]) for row in rows if row["reason"])
    texts += [f"{count} in {kind}: {reason}" for (kind, reason), count in reasons.most_common(_SHOWN)]
    return texts + ([f"{len(reasons) - _SHOWN} more reasons; --json has all"] if len(reasons) > _SHOWN else [])


def show_precision(document: Document, screen: Screen) -> None:
    """The types of layers, and how far the outputs are from those in fp32."""
    for text in precision_texts(document["precision"]):
        screen.line(text)
    compared = document["comparison"]
    if compared["skipped"]:
        screen.line(f"not compared with fp32: {compared['skipped']}")
    if compared["outputs"]:
        inputs = "made-up inputs" if compared["is_made_up"] else "calibration data"
        screen.title(f"Against fp32, on {inputs} ({compared['num_samples']} sample(s))")
        rows = [
            (
                each["name"],
                f"{each['max_abs']:.3g}",
                f"{each['mean_abs']:.3g}",
                f"{each['scale']:.3g}",
                f"{100 * each['max_share']:.2g}%",
                f"{100 * each['mean_share']:.2g}%",
                f"{each['num_broken'] or ''}",
            )
            for each in compared["outputs"]
        ]
        header = ("output", "largest error", "typical", "largest value", "largest", "typical", "became NaN or inf")
        screen.table(header, rows, right=(1, 2, 3, 4, 5, 6))


def explain_skipped(config: BuilderConfig, *, is_elsewhere: bool) -> str:
    """Why a plan cannot be compared here; empty where it can."""
    from dovetail.build.config import BuilderFlag

    if is_elsewhere:
        return "it is built for a device that is not here"
    return "its weights are stripped" if config.get_flag(BuilderFlag.STRIP_PLAN) else ""
