"""``dovetail run``: one run of a plan or model, and what came out."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.feeds import make_context, make_inputs
from dovetail.cli.files import write_file
from dovetail.cli.options import add_model_options, add_target, finish_command, positive_float
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings
from dovetail.cli.shapes import format_shape, parse_shapes
from dovetail.cli.targets import StderrLogger, open_engine

if TYPE_CHECKING:
    import numpy.typing as npt

    from dovetail.runtime.limits import RunLimits

    Array = npt.NDArray[Any]

__all__ = ["declare", "run"]

_NOTHING: Final[Mapping[str, float | None]] = {"min": None, "max": None, "mean": None, "num_nan": 0, "num_inf": 0}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    add_target(parser)
    add_model_options(parser)
    add_build_settings(parser)
    parser.add_argument("--save-outputs", metavar="DIR", help="write each output to a .npy file in this folder")
    parser.add_argument("--time-limit", type=positive_float, metavar="S", help="end the run after so many seconds")
    parser.add_argument(
        "--memory-limit", type=positive_float, metavar="MB", help="end the run when its values take so many megabytes"
    )


def run(args: argparse.Namespace) -> Reply:
    """Run once."""
    shapes = parse_shapes(args.shapes)
    logger = StderrLogger()
    engine = open_engine(args, shapes, logger)
    with engine:
        inputs, unset = make_inputs(engine, args, shapes, logger)
        engine.run_limits = _read_limits(args)
        results = make_context(engine, inputs).run(engine.copy_updated(list(inputs.values())))
    outputs = {tensor.name: array for tensor, array in zip(engine.manifest.outputs, results, strict=True)}
    files = _save(outputs, Path(args.save_outputs)) if args.save_outputs is not None else {}
    document = {
        "engine": engine.name,
        "inputs": [_describe(name, array) for name, array in inputs.items()],
        "outputs": [_with_file(_describe(name, value), files) for name, value in outputs.items()],
        "unset": [dim.to_dict() for dim in unset],
    }
    return Reply(document=document, show=_show)


def _read_limits(args: argparse.Namespace) -> RunLimits | None:
    from dovetail.runtime.limits import RunLimits

    if args.time_limit is None and args.memory_limit is None:
        return None
    memory_bytes = None if args.memory_limit is None else max(1, int(args.memory_limit * 1e6))
    return RunLimits(time_s=args.time_limit, memory_bytes=memory_bytes)


def _describe(name: str, value: Any) -> dict[str, Any]:
    """One row; a sequence has the rows of what is in it, maps a row for each key, and an empty optional nothing."""
    if value is None:
        return {"name": name, "dtype": "none", "shape": None, **_NOTHING}
    if isinstance(value, list | Mapping):
        kind = "sequence" if isinstance(value, list) else "map"
        items = [_describe(item_name, item) for item_name, item in _items(name, value)]
        return {"name": name, "dtype": f"{kind} of {len(value)}", "shape": None, **_NOTHING, "items": items}
    dtype = "string" if value.dtype.kind == "O" else value.dtype.name
    return {"name": name, "dtype": dtype, "shape": list(value.shape), **_statistics(value)}


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is in a sequence or a map; maps with the same keys together, as what each key leads to in all of them."""
    from dovetail.tools.map_tables import tabulate_maps

    table = tabulate_maps(value)
    if table is not None:
        each = f"{name}[*]" if isinstance(value, list) else name
        yield from ((f"{each}[{key!r}]", column) for key, column in zip(table.keys, table.rows.T, strict=True))
    elif isinstance(value, list):
        yield from ((f"{name}[{index}]", item) for index, item in enumerate(value))


def _statistics(array: Array) -> dict[str, float | None]:
    """Smallest, largest and mean of what is finite, and how much is not; nothing of an array without numbers."""
    import numpy as np

    if not array.size or array.dtype.kind in "OSU":
        return dict(_NOTHING)
    values = array if array.dtype.kind == "c" else array.astype(np.float64)
    finite = values[np.isfinite(values)]
    counts = {"num_nan": int(np.isnan(values).sum()), "num_inf": int(np.isinf(values).sum())}
    if not finite.size or values.dtype.kind == "c":  # complex numbers have no order
        return {**_NOTHING, **counts}
    with np.errstate(over="ignore"):  # the mean of large numbers may be infinite
        return {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean()), **counts}


def _save(outputs: Mapping[str, Any], folder: Path) -> dict[str, str]:
    import io

    import numpy as np

    files: dict[str, str] = {}
    for name, array in _flat(outputs):
        buffer = io.BytesIO()
        np.save(buffer, array.astype(str) if array.dtype.kind == "O" else array, allow_pickle=False)
        path = folder / f"{_file_name(name, files)}.npy"
        write_file(path, buffer.getvalue(), option="--save-outputs")
        files[name] = str(path)
    return files


def _flat(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Every array, those in sequences under their numbers; maps with the same keys as these and a table."""
    import numpy as np

    from dovetail.tools.map_tables import tabulate_maps

    for name, value in outputs.items():
        table = tabulate_maps(value)
        if table is not None:
            yield f"{name}.keys", np.array(table.keys)
            yield f"{name}.values", table.rows
        elif isinstance(value, list):
            yield from _flat({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is not None:
            yield name, value


def _file_name(name: str, taken: Mapping[str, str]) -> str:
    """A name that stays in the folder: names of tensors come from the model and may be anything."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".")[:100] or "output"
    stems = {Path(path).stem for path in taken.values()}
    return stem if stem not in stems else f"{stem}.{len(taken)}"


def _with_file(row: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    for item in row.get("items", ()):
        _with_file(item, files)
    if row["name"] in files:
        row["file"] = files[row["name"]]
    halves = [files[name] for name in (f"{row['name']}.keys", f"{row['name']}.values") if name in files]
    if row.get("items") and halves:
        row["files"] = halves
    return row


def _show(document: Document, screen: Screen) -> None:
    for side in ("inputs", "outputs"):
        rows = [row for tensor in document[side] for row in (tensor, *tensor.get("items", ()))]
        screen.title(side.capitalize())
        screen.table(
            ("name", "type", "shape", "min", "max", "mean"),
            [
                (t["name"], t["dtype"], _shape(t["shape"]), *(_number(t[key]) for key in ("min", "max", "mean")))
                for t in rows
            ],
            right=(3, 4, 5),
        )
    for side in ("inputs", "outputs"):
        for row in (row for tensor in document[side] for row in (tensor, *tensor.get("items", ()))):
            if row["num_nan"] or row["num_inf"]:
                screen.line(f"{side[:-1]} '{row['name']}' has {_odd_text(row)}")
    for tensor in document["outputs"]:
        for row in (tensor, *tensor.get("items", ())):
            for path in (row["file"],) if "file" in row else row.get("files", ()):
                screen.line(f"wrote {path}")


def _odd_text(row: Mapping[str, Any]) -> str:
    """How many elements of a tensor are no finite numbers."""
    count = math.prod(row["shape"])
    odd = [f"{row[key]} {word}" for key, word in (("num_nan", "NaN"), ("num_inf", "infinite")) if row[key]]
    left = count - row["num_nan"] - row["num_inf"]
    rest = f"; min, max and mean are of the other {left}" if left else ""
    return f"{' and '.join(odd)} of {count} element{'' if count == 1 else 's'}{rest}"


def _shape(shape: list[int] | None) -> str:
    return "-" if shape is None else format_shape(shape)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
