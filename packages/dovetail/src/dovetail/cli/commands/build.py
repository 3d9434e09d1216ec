"""``dovetail build``: from a model to a plan."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import add_plugins, add_shapes, finish_command, positive_float
from dovetail.cli.precision import add_precision_options, explain_skipped, read_precision, show_precision
from dovetail.cli.progress import make_monitor
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.settings import BuildSettings, add_build_settings, apply_provider_options, read_settings
from dovetail.cli.shapes import ShapeBounds, parse_shapes
from dovetail.cli.targets import StderrLogger, is_plan, load_libraries, require_file
from dovetail.cli.tuning import add_tuning_options, apply_tuning_options, show_chosen, show_tuning, tuning_rows
from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.build.builder import Builder
    from dovetail.build.config import BuilderConfig
    from dovetail.build.request import BuiltPlan
    from dovetail.plan.manifest import Manifest

__all__ = ["declare", "run"]

_CANDIDATES_MIB: Final = 256


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("model", metavar="MODEL", help="the ONNX model")
    parser.add_argument(
        "-o", "--output", metavar="PLAN", help="where to write the plan (default: the model's name, .plan)"
    )
    _add_shape_arguments(parser)
    _add_plugin_arguments(parser)
    add_build_settings(parser)
    add_tuning_options(parser)
    add_precision_options(parser)
    parser.add_argument(
        "--target", metavar="DEVICE", help="build for a device that is not here, such as sm_90; nothing is timed"
    )
    parser.add_argument(
        "--carry-candidates",
        nargs="?",
        type=positive_float,
        const=_CANDIDATES_MIB,
        metavar="MIB",
        help="store the compiled candidates of every choice, at most so much for each partition "
        f"({_CANDIDATES_MIB}), for 'dovetail tune' to choose between where the device is",
    )
    parser.add_argument(
        "--if-untuned", action="store_true", help="keep a plan that is there and was tuned on this device already"
    )
    parser.add_argument("--refit", action="store_true", help="keep weights replaceable")
    parser.add_argument("--strip-weights", action="store_true", help="leave replaceable weights out of the plan")
    parser.add_argument(
        "--alias",
        action="append",
        default=[],
        metavar="OUTPUT=INPUT",
        help="write an output into the memory of an input, such as a cache; one option a pair",
    )
    parser.add_argument("--alias-io", action="store_true", help="let plugins write outputs into their inputs (preview)")
    parser.add_argument(
        "--no-run-plugins", action="store_true", help="do not run each plugin once before the plan is saved"
    )
    parser.add_argument(
        "--detailed", action="store_true", help="let the engine inspector show everything, not only names"
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--verbose", action="store_true", help="show the time of each phase and the tuner's table")
    amount.add_argument("--quiet", action="store_true", help="show no progress and no summary")


def _add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    add_shapes(parser)
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME:SHAPE[,...]",
        help="a further profile, written like --shapes; one option a profile",
    )
    parser.add_argument(
        "--shape-values",
        action="append",
        default=[],
        metavar="NAME:VALUES",
        help="contents of shape inputs in the profile of --shapes, as n:4x4 or min:opt:max",
    )


def _add_plugin_arguments(parser: argparse.ArgumentParser) -> None:
    add_plugins(parser)
    parser.add_argument(
        "--carry-plugins",
        nargs="+",
        action="extend",
        default=[],
        metavar="LIB",
        help="plugin libraries to import and to store in the plan; loading it then needs --host-code",
    )


def run(args: argparse.Namespace) -> Reply:
    """Build and write the plan."""
    profiles, settings = _profiles(args), read_settings(args)
    model = require_file(args.model)
    target = Path(args.output) if args.output is not None else model.with_suffix(".plan")
    _check_target(target, model)
    kept = _find_tuned(target) if args.if_untuned else None
    if kept is not None:
        return Reply(document=kept, show=_show_nothing if args.quiet else _show_kept)

    from dovetail.build.builder import Builder
    from dovetail.loggers import Severity

    apply_provider_options([*args.provider_option, *_target_options(args.target, settings)])
    logger = StderrLogger(_severity(args, Severity))
    job = _BuildJob(Builder(logger), _make_config(args, profiles, settings), settings, args)
    start = time.perf_counter()
    plan = job.build(model, target, [*args.plugins, *args.carry_plugins])
    document = _describe(plan, job.phase_times, target, logger, time.perf_counter() - start)
    document["comparison"] = job.comparison
    return Reply(document=document, show=_show_nothing if args.quiet else _show_verbose if args.verbose else _show)


def _find_tuned(target: Path) -> dict[str, Any] | None:
    """What is said of a plan that is there and need not be built again; None where it must be."""
    from dovetail.plan.compatibility import check_plan

    if not target.is_file():
        return None
    report = check_plan(target)
    return {"plan": str(target), "kept": report.reasons} if report.verdict == "optimal" else None


def _target_options(device: str | None, settings: BuildSettings) -> list[str]:
    """The option of each provider that builds for devices that are not here."""
    if device is None:
        return []
    from dovetail.provider.interfaces import TargetFactory
    from dovetail.provider.loader import TARGET, get_factory

    names = [name for name in settings.providers or () if isinstance(get_factory(name), TargetFactory)]
    if not names:
        raise UsageError(
            "no provider of this build is for devices that are not here",
            where=f"--target {device!a}",
            fix="name one with --providers, such as cuda",
        )
    return [f"{name}.{TARGET}={device}" for name in names]


def _check_target(target: Path, model: Path) -> None:
    """Nobody waits for a build to hear that its plan has no place."""
    if "\0" in str(target):
        raise UsageError("the path has a NUL character", where=ascii(str(target)), fix="give another name with -o")
    if target.resolve() == model.resolve() and not is_plan(model):  # a plan is no model, which the importer tells
        raise UsageError("the plan would overwrite the model", where=str(target), fix="give another name with -o")
    if target.is_dir() or not target.parent.is_dir():
        what = "this is a folder" if target.is_dir() else "there is no such folder"
        where = str(target if target.is_dir() else target.parent)
        raise UsageError(what, where=where, fix="give the path of a file with -o")


class _BuildJob:
    """A build from file to file, with the time of each phase."""

    def __init__(
        self, builder: Builder, config: BuilderConfig, settings: BuildSettings, args: argparse.Namespace
    ) -> None:
        self._builder = builder
        self._config = config
        self._override = settings.override
        self._args = args
        self.comparison: dict[str, Any] = {"skipped": "", "is_made_up": True, "num_samples": 0, "outputs": []}
        self.phase_times: list[tuple[str, str | None, float]] = []

    def build(self, model: Path, target: Path, libraries: list[str]) -> BuiltPlan:
        from dovetail.build.progress import Phases
        from dovetail.network.importer.importer import import_model
        from dovetail.network.importer.kernels import find_kernel_for
        from dovetail.plan.container import write_plan
        from dovetail.plan.manifest import encode_manifest
        from dovetail.provider.defaults import default_providers

        before, after = Phases(self._config.progress_monitor), Phases(self._config.progress_monitor)
        registry = self._builder.get_plugin_registry()
        with before.phase("Import model"):
            load_libraries(libraries, registry)
            imported = import_model(
                model,
                registry=registry,
                logger=self._builder.logger,
                override=self._override,
                kernels=find_kernel_for(self._config.providers or default_providers()),
            )
        self._config.precision = read_precision(self._args, imported, self._builder.logger)
        plan = self._builder.build_plan(imported, self._config, is_open=not self._config.profiles)
        with after.phase("Save plan"):
            write_plan(target, encode_manifest(plan.manifest), plan.blobs)
        if plan.samples:
            with after.phase("Compare with fp32"):
                self._compare(plan)
        self.phase_times = [*before.times, *self._builder.phase_times, *after.times]
        return plan

    def _compare(self, plan: BuiltPlan) -> None:
        """Run the plan over what the fp32 model was run over."""
        from dovetail.build.builder import engine_from_plan
        from dovetail.build.precision.compare import compare_outputs

        skipped = explain_skipped(self._config, is_elsewhere=self._args.target is not None)
        if not skipped:
            with engine_from_plan(plan, self._builder.get_plugin_registry(), self._config.provider_options) as engine:
                outputs = [each.to_dict() for each in compare_outputs(engine, plan.samples)]
            self.comparison["outputs"], self.comparison["num_samples"] = outputs, len(plan.samples)
        self.comparison["skipped"] = skipped
        precision = self._config.precision
        self.comparison["is_made_up"] = precision is None or precision.calibration is None


def _severity(args: argparse.Namespace, severity: Any) -> Any:
    if args.verbose:
        return severity.VERBOSE
    return severity.ERROR if args.quiet else severity.WARNING


# settings


def _profiles(args: argparse.Namespace) -> list[tuple[dict[str, ShapeBounds], dict[str, ShapeBounds]]]:
    """For each profile the shapes, and the contents of shape inputs."""
    shapes = parse_shapes(args.shapes)
    values = parse_shapes(args.shape_values, option="--shape-values")
    profiles = [(shapes, values)] if shapes or values else []
    return profiles + [(parse_shapes([text], option="--profile"), {}) for text in args.profile]


def _make_config(
    args: argparse.Namespace,
    profiles: Iterable[tuple[dict[str, ShapeBounds], dict[str, ShapeBounds]]],
    settings: BuildSettings,
) -> BuilderConfig:
    from dovetail.build.config import (
        BuilderConfig,
        BuilderFlag,
        PreviewFeature,
        ProfilingVerbosity,
    )
    from dovetail.build.profile import OptimizationProfile

    config = settings.apply(BuilderConfig())
    for shapes, values in profiles:
        profile = OptimizationProfile()
        for name, bounds in shapes.items():
            profile.set_shape(name, *bounds)
        for name, bounds in values.items():
            profile.set_shape_input(name, *bounds)
        config.add_optimization_profile(profile)
    flags = {
        BuilderFlag.REFIT: args.refit or args.strip_weights,
        BuilderFlag.STRIP_PLAN: args.strip_weights,
    }
    for flag, is_set in flags.items():
        if is_set:
            config.set_flag(flag)
    config.set_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03, args.alias_io)
    config.run_plugins = not args.no_run_plugins
    config.aliases = _read_aliases(args.alias)
    if args.detailed:
        config.profiling_verbosity = ProfilingVerbosity.DETAILED
    config.candidate_bytes = int((args.carry_candidates or 0) * 2**20)
    config.progress_monitor = make_monitor(quiet=args.quiet, verbose=args.verbose)
    apply_tuning_options(args, config)
    config.plugins_to_serialize = args.carry_plugins
    return config


# the answer


def _describe(
    plan: BuiltPlan,
    phase_times: Iterable[tuple[str, str | None, float]],
    target: Path,
    logger: StderrLogger,
    elapsed_s: float,
) -> dict[str, Any]:
    from dovetail.plan.workspaces import max_workspace

    manifest = plan.manifest
    return {
        "plan": str(target),
        "size_bytes": target.stat().st_size,
        "seconds": elapsed_s,
        "open": manifest.open,
        "num_profiles": len(manifest.profiles),
        "steps": [dict(Counter(step.kind for step in program.steps)) for program in manifest.programs],
        "arena_bytes": [program.arena_bytes for program in manifest.programs],
        "workspace_bytes": [max_workspace(program) for program in manifest.programs],
        "layers": tuning_rows(manifest.tuning),
        "rivals": _find_rivals(manifest),
        "libraries": [library.name for library in manifest.libraries],
        "refittable": [] if manifest.refit is None else sorted(manifest.refit.weights),
        "not_refittable": {} if manifest.refit is None else dict(manifest.refit.excluded),
        "phases": [{"name": n, "parent": parent, "seconds": s} for n, parent, s in phase_times],
        "precision": [
            {"layer": row.layer, "op": row.op, "type": row.type, "reason": row.reason} for row in manifest.precision
        ],
        "warnings": logger.warnings,
    }


def _find_rivals(manifest: Manifest) -> str | None:
    from dovetail.build.tune.rivals import NOTE

    return next((note.text for note in manifest.notes if note.text.startswith(NOTE)), None)


def _show_nothing(document: Document, screen: Screen) -> None:
    """What ``--quiet`` shows."""


def _show_kept(document: Document, screen: Screen) -> None:
    screen.line(f"{document['plan']}: kept, {'; '.join(document['kept'])}")


def _show(document: Document, screen: Screen) -> None:
    size = format_bytes(document["size_bytes"])
    screen.line(f"{document['plan']}: {size}, built in {document['seconds']:.2f} s")
    for index, kinds in enumerate(document["steps"]):
        steps = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
        memory = f"arena {format_bytes(document['arena_bytes'][index])}"
        name = "any shape" if document["open"] else f"profile {index}"
        screen.line(f"{name}: {sum(kinds.values())} steps ({steps}), {memory}")
    if document["rivals"]:
        screen.line(document["rivals"])
    if document["refittable"]:
        screen.line(
            f"{len(document['refittable'])} weight(s) can be refitted, {len(document['not_refittable'])} cannot"
        )
    show_precision(document, screen)
    show_chosen(document["layers"], screen)


def _show_verbose(document: Document, screen: Screen) -> None:
    _show(document, screen)
    screen.title("Phases")
    rows = [(f"{'  ' if p['parent'] else ''}{p['name']}", f"{1e3 * p['seconds']:.1f}") for p in document["phases"]]
    screen.table(("phase", "ms"), rows, right=(1,))
    show_tuning(document["layers"], screen)


def _read_aliases(texts: Sequence[str]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for text in texts:
        output, _, source = text.partition("=")
        if not output or not source:
            raise UsageError("not a pair of names", where=f"--alias {text!r}", expected="OUTPUT=INPUT")
        if aliases.setdefault(output, source) != source:
            raise UsageError(
                f"output '{output}' has the memory of one input",
                where=f"--alias {text!r}",
                got=f"'{aliases[output]}' and '{source}'",
                fix="leave one of them out",
            )
    return aliases
