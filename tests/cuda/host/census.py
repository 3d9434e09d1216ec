"""Which of onnx's node tests this back end takes: ``python -m tests.cuda.host.census`` counts them without a GPU.

Every case is built for a device that is not here, with kernels that are written down and not compiled. What is printed
is how many cases run wholly on CUDA, in part, and not at all; then the operators of those that do not run wholly there,
each with its reason, the most frequent first. ``-k PATTERN`` takes some of the cases, ``--cases`` names them.
"""

from __future__ import annotations

import argparse
import fnmatch
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import dovetail
from dovetail.build.assign.support import find_support
from dovetail.build.builder import Builder
from dovetail.loggers import ILogger
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import find_kernel_for
from dovetail.plugin.registry import get_plugin_registry
from dovetail.provider.loader import register_provider, set_default_options, unregister_provider
from tests.conformance.onnx_backend.harness import Case, load_cases, load_skips
from tests.cuda.host.fake_provider import make_factory

__all__ = ["CaseSupport", "list_support"]

PROVIDERS = ["cuda", "cpu"]


class _Silent(ILogger):
    def log(self, severity: object, msg: str) -> None:
        return


@dataclass(frozen=True, kw_only=True)
class CaseSupport:
    """Who runs one case."""

    case: str
    providers: frozenset[str]
    refusals: frozenset[str]
    """The operators that are not taken, each with the reason."""

    @property
    def place(self) -> str:
        """Where it runs, as a column of the table."""
        return "wholly" if self.providers == {"cuda"} else "in part" if "cuda" in self.providers else "not at all"


def _find(case: Case) -> CaseSupport:
    (model, _), silent, config = case.load(), _Silent(), dovetail.BuilderConfig()
    config.providers = PROVIDERS
    kernels = find_kernel_for(PROVIDERS)
    network = import_model(model, registry=get_plugin_registry(), logger=silent, kernels=kernels)
    found = find_support(network, providers=PROVIDERS)
    programs = Builder(silent).build_plan(network, config, is_open=True).manifest.programs
    return CaseSupport(
        case=case.name,
        providers=frozenset(step.provider for program in programs for step in program.steps),
        refusals=frozenset(f"{each.node.op_type}: {each.reason}" for each in found if each.provider != "cuda"),
    )


def list_support(pattern: str = "*") -> Iterator[CaseSupport]:
    """Every case that ``cpu`` passes."""
    skips = load_skips()
    for case in load_cases():
        is_wanted = case.kind == "node" and fnmatch.fnmatchcase(case.name, pattern)
        if is_wanted and not any(skip.covers(case.name, "cpu") for skip in skips):
            yield _find(case)


def _print(found: Iterable[CaseSupport], *, with_cases: bool) -> None:
    places: Counter[str] = Counter()
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for each in found:
        places[each.place] += 1
        for reason in each.refusals if each.place != "wholly" else ():
            reasons[reason].append(each.case)
    print(", ".join(f"{places[place]} {place}" for place in ("wholly", "in part", "not at all")))
    for reason, cases in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{len(cases):5} {reason}")
        for case in cases if with_cases else ():
            print(f"      {case}")


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="*", metavar="PATTERN", help="names of cases, such as 'test_top_k*'")
    parser.add_argument("--cases", action="store_true", help="name the cases of each reason")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        register_provider(make_factory())
        set_default_options("cuda", {"kernel_store": folder, "target": "sm_90"})
        try:
            _print(list_support(options.k), with_cases=options.cases)
        finally:
            set_default_options("cuda", {})
            unregister_provider("cuda")


if __name__ == "__main__":
    _main()
