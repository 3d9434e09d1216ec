"""In which way does a model fail? Each way is a question that can be asked of a smaller model too.

* ``compare``: Dovetail and a reference do not agree.
* ``crash``: building or running raises an error of the same class whose message starts the same way, names and numbers
  left aside.
* a command: a program that is given the model ends with the same code, which is not 0.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx_ir as ir

from dovetail.errors import DovetailError, UsageError
from dovetail.inputs.array_files import pack_arrays
from dovetail.tools.differences import TensorDifference, Tolerance, compare_values
from dovetail.tools.recording import Recorder
from dovetail.tools.sides import DovetailSide, Side, save_model

__all__ = ["CommandFailure", "CompareFailure", "CrashFailure", "FailureSignature", "sign_error"]

_VARYING: Final = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|\d+|\([^()]*\)|\[[^\[\]]*\]")
_HEAD_CHARS: Final = 60


@dataclass(frozen=True)
class FailureSignature:
    """What makes two errors the same: their class, and how their messages start."""

    kind: str
    head: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.head}"


def sign_error(error: BaseException) -> FailureSignature:
    """The signature of an error; names, numbers and shapes do not count, as they change with the model.

    >>> sign_error(ValueError("node 'a' has 3 inputs")) == sign_error(ValueError("node 'bc' has 12 inputs"))
    True
    """
    text = error.what if isinstance(error, DovetailError) else str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    head = " ".join(_VARYING.sub("*", lines[0] if lines else "").split())
    return FailureSignature(type(error).__name__, head[:_HEAD_CHARS])


@dataclass(frozen=True, kw_only=True)
class CompareFailure:
    """The candidate does not agree with the reference."""

    candidate: Side
    reference: Side
    recorder: Recorder
    tolerance: Tolerance

    def __call__(self, model: ir.Model) -> bool:
        """Whether any output differs; a model that one side does not run at all fails in another way."""
        try:
            return any(difference.differs for difference in self.compare(model))
        except Exception:  # noqa: BLE001 - whatever is raised, it is not the difference that is looked for
            return False

    def compare(self, model: ir.Model) -> list[TensorDifference]:
        """Both sides, output by output."""
        feeds = self.recorder.feeds_for(model)
        ours, theirs = self.candidate.run(model, feeds), self.reference.run(model, feeds)
        return [compare_values(name, ours[name], theirs[name], self.tolerance) for name in theirs]


@dataclass(frozen=True, kw_only=True)
class CrashFailure:
    """Building or running raises an error with a certain signature."""

    candidate: DovetailSide
    recorder: Recorder
    signature: FailureSignature

    def __call__(self, model: ir.Model) -> bool:
        """Whether it is raised again."""
        return find_error(self.candidate, model, self.recorder) == self.signature


def find_error(
    candidate: DovetailSide, model: ir.Model, recorder: Recorder, *, passes_on: tuple[type[Exception], ...] = ()
) -> FailureSignature | None:
    """The signature of what building and running a model raises; None when nothing is.

    Args:
        candidate: What builds and runs it.
        model: The model.
        recorder: Who has values for its inputs.
        passes_on: Errors that are raised and not looked for.
    """
    try:
        with candidate.build(model) as engine:
            context = engine.create_execution_context()
            feeds = recorder.feeds_for(model)
            context.run(engine.copy_updated([feeds[tensor.name] for tensor in engine.manifest.inputs]))
    except passes_on:
        raise
    except Exception as error:  # noqa: BLE001 - errors of every kind are what is looked for
        return sign_error(error)
    return None


@dataclass(frozen=True, kw_only=True)
class CommandFailure:
    """A program ends with a certain code when it is given the model.

    In its arguments ``{model}`` stands for the path of the model and ``{inputs}`` for that of a ``.npz`` file with
    values for its inputs; without ``{model}`` the path comes last. A shell is used only when one is asked for.
    """

    command: Sequence[str]
    recorder: Recorder
    exit_code: int
    uses_shell: bool = False
    timeout_s: float = 300.0

    def __call__(self, model: ir.Model) -> bool:
        """Whether the program ends that way again."""
        return run_command(self, model) == self.exit_code


def run_command(failure: CommandFailure, model: ir.Model) -> int | None:
    """The exit code of the program for a model; None when it takes too long.

    Raises:
        UsageError: There is no such program.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        save_model(model, path)
        inputs.write_bytes(pack_arrays(failure.recorder.feeds_for(model)))
        words = _fill(failure.command, str(path), str(inputs))
        try:
            done = subprocess.run(  # noqa: S603 - what the user asked for, word by word
                " ".join(words) if failure.uses_shell else words,
                shell=failure.uses_shell,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=failure.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            raise UsageError(f"the command cannot be run: {error.strerror or error}", where=words[0]) from error
    return done.returncode


def _fill(command: Sequence[str], model: str, inputs: str) -> list[str]:
    words = [word.replace("{model}", model).replace("{inputs}", inputs) for word in command]
    return words if any("{model}" in word for word in command) else [*words, model]
