"""Cases that are built on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from replay.cpu_errors import ERROR_CASES
from replay.cpu_models import MODEL_CASES
from replay.cpu_plugins import PLUGIN_CASES
from replay.recorder import replay_case

__all__ = ["replay_cpu"]

QUICK = {
    "model_bert_dynamic",
    "random_3",
    "control_nested",
    "precision_int8",
    "profiles_two_refit",
    "plugin_mixed_formats",
    "plugin_loop",
    "plugin_quick_layer",
    "error_enqueue",
    "error_unknown_op",
}
"""Cases of the check before a commit: one of each kind."""


def replay_cpu(*, is_quick: bool, only: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the canonical text of each selected case."""
    for name, run in (MODEL_CASES | PLUGIN_CASES | ERROR_CASES).items():
        if only in name and (name in QUICK or not is_quick):
            yield f"{name}.txt", replay_case(run)
