"""The rows of the benchmark: a model at a batch, the best peer's time, and the part of it that ours may take.

The peers' times are those that torch.compile, ONNX Runtime with a CUDA graph and PyTorch took on an H200, in float16
with inputs on the device; each is the best of them. They are fixed, and scaled by a calibrator that runs beside ours:
the blocks of BERT in PyTorch under a CUDA graph, which took ``CALIBRATOR_MS`` where the peers were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CALIBRATOR_MS", "MAX_BUILD_S", "MAX_ERROR", "MAX_LOAD_MS", "MAX_REBUILD_S", "ROWS", "Row", "find_rows"]

CALIBRATOR_MS = {1: 0.533, 32: 1.71}
"""By batch; that of one sequence stands for the rows of batch 1, that of 32 for the others."""
MAX_ERROR = 1e-2
MAX_BUILD_S, MAX_REBUILD_S, MAX_LOAD_MS = 90.0, 5.0, 300.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model at a batch."""

    model: str
    batch: int
    peer_ms: float
    most: float
    """The part of the best peer's time that a run may take."""
    has_plain_peer: bool = False
    """Whether the peer is plain PyTorch under a CUDA graph, timed beside ours."""
    takes_plugin: bool = False
    """Whether the model is timed with a Python plugin in its middle too."""

    @property
    def name(self) -> str:
        """How it is asked for, such as ``resnet50:32``."""
        return f"{self.model}:{self.batch}"

    def scale_peer(self, calibrator_ms: dict[int, float]) -> float:
        """The peer's time as it would be on the machine where the calibrator took this long."""
        batch = 1 if self.batch == 1 else 32
        return self.peer_ms * calibrator_ms[batch] / CALIBRATOR_MS[batch]


ROWS = [
    Row(model="resnet50", batch=1, peer_ms=0.438, most=0.80, takes_plugin=True),
    Row(model="resnet50", batch=32, peer_ms=1.71, most=0.70, takes_plugin=True),
    Row(model="mobilenet_v3_large", batch=1, peer_ms=0.423, most=0.80),
    Row(model="convnext_tiny", batch=1, peer_ms=0.787, most=0.75),
    Row(model="vit_b_16", batch=1, peer_ms=0.745, most=0.60),
    Row(model="vit_b_16", batch=32, peer_ms=3.39, most=0.85),
    Row(model="bert_base", batch=1, peer_ms=0.863, most=0.45),
    Row(model="bert_base", batch=32, peer_ms=2.65, most=0.65),
    Row(model="gpt2", batch=1, peer_ms=0.818, most=0.65),
    Row(model="gpt2", batch=8, peer_ms=2.27, most=0.85),
    Row(model="gpt2_decode", batch=1, peer_ms=0.669, most=0.5, has_plain_peer=True),
]


def find_rows(names: Sequence[str]) -> list[Row]:
    """Rows by name, or by model for all batches of it; all of them where none is named.

    Raises:
        ValueError: There is no such row.
    """
    unknown = [name for name in names if not any(name in (row.name, row.model) for row in ROWS)]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or row.name in names or row.model in names]
