"""The backend suite of the installed onnx, run through ``dovetail.compile``: which cases pass, and why others do not.

``python -m tests.conformance.onnx_backend.harness --providers cpu -k pattern`` prints counts and failures by reason.
A case passes when every output has the shape and type that the suite expects and lies within the tolerances that the
suite itself gives it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
import tomllib
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader, runner

import dovetail
from dovetail.errors import DovetailError

__all__ = ["PROVIDER_SETS", "Case", "Outcome", "Skip", "compare", "load_cases", "load_counts", "load_skips", "run_case"]

HERE = Path(__file__).parent
PROVIDER_SETS: dict[str, list[str] | None] = {"default": None, "cpu": ["cpu"]}
"""Name of a set of providers -> what ``compile`` is given."""
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")

DataSet = tuple[list[Any], list[Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of the suite; the model and its data are read when it is run."""

    name: str
    kind: str
    rtol: float
    atol: float
    load: Callable[[], tuple[onnx.ModelProto, list[DataSet]]] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case; the reason is empty when it passed."""

    case: Case
    reason: str = ""
    detail: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Skip:
    """A line of ``skips.toml``: cases that do not pass, and why."""

    test: str
    reason: str
    providers: Sequence[str] = tuple(PROVIDER_SETS)
    run: bool = True
    """Whether the cases are run all the same, so that the line goes when they pass."""

    def covers(self, name: str, provider_set: str) -> bool:
        """Whether a case is meant."""
        return provider_set in self.providers and fnmatch.fnmatchcase(name, self.test)


# cases


@cache
def load_cases() -> tuple[Case, ...]:
    """Every case of the suite whose data is on this machine, in the order of their names."""
    return tuple(sorted((case for kind in KINDS for case in _cases_of(kind)), key=lambda case: (case.kind, case.name)))


def _cases_of(kind: str) -> Iterator[Case]:
    with warnings.catch_warnings():
        # The generators overflow on purpose while they make the expected values.
        warnings.simplefilter("ignore")
        tests = loader.load_model_tests(kind=kind)
    for test in tests:
        load = _loader(test)
        if load is not None:
            yield Case(name=test.name, kind=kind, rtol=test.rtol, atol=test.atol, load=load)


def _loader(test: Any) -> Callable[[], tuple[onnx.ModelProto, list[DataSet]]] | None:
    if test.model is not None:
        return lambda: (test.model, [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets])
    if test.model_dir is not None:
        return lambda: _load_folder(Path(test.model_dir))
    light = Path(loader.DATA_DIR).parents[3] / test.url if "://" not in test.url else Path()
    return (lambda: _load_light(light)) if light.is_file() else None


def _arrays(values: Iterable[Any]) -> list[Any]:
    return [numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in values]


def _load_folder(folder: Path) -> tuple[onnx.ModelProto, list[DataSet]]:
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = [_load_value(path, model.graph.input[i].type) for i, path in enumerate(_numbered(data, "input"))]
        outputs = [_load_value(path, model.graph.output[i].type) for i, path in enumerate(_numbered(data, "output"))]
        sets.append((inputs, outputs))
    return model, sets


def _numbered(folder: Path, stem: str) -> list[Path]:
    return [folder / f"{stem}_{index}.pb" for index in range(len(list(folder.glob(f"{stem}_*.pb"))))]


def _load_value(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _load_light(path: Path) -> tuple[onnx.ModelProto, list[DataSet]]:
    """A model whose weights are made in the model; the suite feeds it numbers from 0 to 1, in order."""
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for info in model.graph.input:
        if info.name not in weights:
            shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    outputs = [
        _load_value(path.with_name(f"{path.stem}_output_{index}.pb"), info.type)
        for index, info in enumerate(model.graph.output)
    ]
    return model, [(inputs, outputs)]


# running


def run_case(case: Case, providers: list[str] | None) -> Outcome:
    """Build, run and compare one case; whatever goes wrong is its reason."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check(case, providers)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what this is for
        seconds = time.perf_counter() - start
        return Outcome(case=case, reason=_reason(error), detail=traceback.format_exc(), seconds=seconds)
    return Outcome(case=case, seconds=time.perf_counter() - start)


def _check(case: Case, providers: list[str] | None) -> None:
    model, data_sets = case.load()
    with dovetail.compile(model, providers=providers) as engine:
        for inputs, expected in data_sets:
            results = engine(*inputs)
            outputs = list(results.values()) if isinstance(results, dict) else [results]
            compare(expected, outputs, case)


def compare(expected: list[Any], outputs: list[Any], case: Case) -> None:
    """The suite's own comparison, which asks of a sequence only that its parts are alike, and knows no None."""
    for index, (wanted, got) in enumerate(zip(expected, outputs, strict=True)):
        if wanted is None or got is None:
            assert wanted is got, f"output {index} is {type(got).__name__}, expected {type(wanted).__name__}"
        elif isinstance(wanted, list):
            assert isinstance(got, list), f"output {index} is {type(got).__name__}, expected a list"
            assert len(got) == len(wanted), f"output {index} has {len(got)} parts, expected {len(wanted)}"
            compare(wanted, got, case)
        else:
            runner.Runner.assert_similar_outputs([np.asarray(wanted)], [got], rtol=case.rtol, atol=case.atol)


def _reason(error: Exception) -> str:
    """One line that failures of one cause share: names and numbers of the case are left out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = " ".join(lines[: 3 if isinstance(error, DovetailError) else 2])
    return f"{type(error).__name__}: {re.sub(r'[0-9]+', '#', text)[:200]}"


# data


def load_skips() -> list[Skip]:
    """The cases that are known not to pass."""
    return [Skip(**line) for line in tomllib.loads((HERE / "skips.toml").read_text(encoding="utf-8"))["skip"]]


def load_counts() -> dict[str, dict[str, int]]:
    """Set of providers -> how many cases there are and how many pass."""
    counts: dict[str, dict[str, int]] = json.loads((HERE / "counts.json").read_text(encoding="utf-8"))
    return counts


# the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--providers", choices=PROVIDER_SETS, default="default")
    parser.add_argument("-k", default="*", help="pattern of names, such as 'test_sequence_*'")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--slow", type=float, help="print cases that take this many seconds")
    parser.add_argument("-v", action="store_true", help="print tracebacks")
    options = parser.parse_args(arguments)
    pattern = options.k if "*" in options.k else f"*{options.k}*"
    cases = [case for case in load_cases() if fnmatch.fnmatchcase(case.name, pattern)]
    cases = [case for case in cases if options.kind in (None, case.kind)]
    outcomes = [run_case(case, PROVIDER_SETS[options.providers]) for case in cases]
    _print(outcomes, verbose=options.v)
    for outcome in outcomes:
        if options.slow is not None and outcome.seconds >= options.slow:
            print(f"{outcome.seconds:7.2f} s  {outcome.case.name}")
    return 1 if any(outcome.reason for outcome in outcomes) else 0


def _print(outcomes: Sequence[Outcome], *, verbose: bool) -> None:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.reason:
            groups[outcome.reason].append(outcome)
    for reason, group in sorted(groups.items(), key=lambda item: len(item[1])):
        print(f"{len(group):5}  {reason}")
        for outcome in group:
            print(f"         {outcome.case.name}")
        if verbose:
            print(group[0].detail)
    passed = sum(not outcome.reason for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"{passed} of {len(outcomes)} pass ({passed / max(len(outcomes), 1):.2%}), {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
