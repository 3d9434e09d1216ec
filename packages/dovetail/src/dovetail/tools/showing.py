"""What a notebook shows of a comparison: each output with its errors, and the first layer that diverges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail import markup

if TYPE_CHECKING:
    from dovetail.tools.compare import CompareResult
    from dovetail.tools.differences import TensorDifference

__all__ = ["show_comparison"]


def show_comparison(result: CompareResult) -> str:
    """A comparison as HTML."""
    verdict = "close" if result.is_close else "not close"
    title = f"{', '.join(result.providers)} against {result.against}: {verdict}"
    headers = ("output", "type", "shape", "largest error", "mean error", "wrong", "")
    parts = [markup.heading(title), markup.table(headers, [_row(o) for o in result.outputs], right=(3, 4, 5))]
    if result.divergence is not None:
        layer = result.divergence.layer
        parts.append(markup.heading(f"First layer that diverges: '{layer.name}' ({layer.op})"))
        parts.append(markup.table(headers, [_row(o) for o in layer.outputs], right=(3, 4, 5)))
    if result.layers is not None:
        rows = [
            (layer.index, layer.name, layer.op, "close" if layer.is_close else "differs") for layer in result.layers
        ]
        table = markup.table(("", "layer", "operator", ""), rows, right=(0,))
        parts.append(markup.fold(f"Layers ({len(rows)})", table))
    return markup.join([*parts, *(markup.line(f"Note: {note}") for note in result.notes)])


def _row(difference: TensorDifference) -> tuple[object, ...]:
    return (
        difference.name,
        difference.dtype,
        "x".join(map(str, difference.shape)) or "scalar",
        _number(difference.max_abs),
        _number(difference.mean_abs),
        f"{difference.num_wrong:,} of {difference.size:,}",
        difference.reason or difference.note or ("close" if difference.is_close else ""),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
