"""The provider that is judged: its factory, itself, engines over it, and what it built and loaded for them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.loggers import ILogger
from dovetail.provider.interfaces import Provider, ProviderFactory
from dovetail.provider.loader import get_provider
from dovetail.rules import Broken, NotJudged, NotOffered
from dovetail.runtime.engine import Engine
from dovetail.testing.provider_kit.models import Case, Feed

__all__ = ["CheckedProvider", "LogRecording", "describe", "overrides"]


@dataclass
class LogRecording:
    """What building and loading went through."""

    built: list[tuple[str, Any]] = field(default_factory=list)
    """``build_kernel`` or ``build_partition``, and what it gave."""
    loads: list[tuple[Callable[[Any], Any], Any]] = field(default_factory=list)
    """``load_kernel`` or ``load_partition``, and what it was given; only where there is a payload."""
    loaded: list[weakref.ref[Any]] = field(default_factory=list)
    """The partitions that were loaded."""
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    """What building raised; the builder then looks for another provider and goes on."""


class _Silence(ILogger):
    """Nobody reads what builds of the kit tell."""

    def log(self, severity: Any, msg: str) -> None:
        """Drop it."""


class CheckedProvider:
    """What the rules look at.

    Args:
        factory: What makes the provider.
        options: How it is made.
        model: The author's own model, tried with the others.
        problem: Why the factory could not be registered, if so.
    """

    def __init__(
        self,
        factory: ProviderFactory,
        *,
        options: Mapping[str, str],
        model: Case | None = None,
        tolerance: float = 1e-3,
        problem: DovetailError | None = None,
    ) -> None:
        self.factory = factory
        self.options = dict(options)
        self.model = model
        self.tolerance = tolerance
        self.problem = problem
        self.recording = LogRecording()
        self._engines: dict[str, Engine | Exception] = {}

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.factory.name)

    @property
    def provider(self) -> Provider:
        """The provider as engines get it."""
        if self.problem is not None:
            raise NotJudged("the factory was refused, see P01")
        try:
            return get_provider(self.name, self.options)
        except DovetailError as error:
            raise NotJudged("it could not be made, see P03") from error

    # engines

    def compile(self, model: Any, *, flags: Sequence[Any] = ()) -> Engine:
        """An engine over this provider, and ``cpu`` for what it does not take."""
        from dovetail.api import compile as compile_model
        from dovetail.build.config import BuilderConfig

        config = BuilderConfig()
        for flag in flags:
            config.set_flag(flag)
        config.provider_options = {self.name: self.options} if self.options else {}
        names = dict.fromkeys((self.name, "cpu"))
        with self._record():
            return compile_model(model, providers=list(names), config=config, logger=_Silence())

    def build(self, case: Case) -> Engine:
        """The engine of a case, made once; the rules about building own what goes wrong."""
        _ = self.provider
        if case.name not in self._engines:
            self._engines[case.name] = self._try(case)
        found = self._engines[case.name]
        if isinstance(found, Exception):
            raise NotJudged(f"the model '{case.name}' could not be built, see P20")
        if not self.own_steps(found):
            raise NotOffered(f"it takes nothing of the model '{case.name}'")
        return found

    def _try(self, case: Case) -> Engine | Exception:
        try:
            return self.compile(case.make_model())
        except Exception as error:  # noqa: BLE001 - whatever a provider does, the other rules are judged too
            return error

    def build_failure(self, case: Case) -> Exception | None:
        """What building a case raised."""
        try:
            self.build(case)
        except (NotOffered, NotJudged):
            found = self._engines.get(case.name)
            return found if isinstance(found, Exception) else None
        return None

    def own_steps(self, engine: Engine) -> list[Any]:
        """The steps of an engine that this provider runs, copies not counted."""
        own = (self.name, self.provider.id)
        steps = [step for program in engine.manifest.programs for step in program.steps]
        return [step for step in steps if step.provider in own and step.kind != "copy"]

    def expect(self, model: Any, feed: Feed) -> dict[str, Any]:
        """What ``cpu`` gives, by output."""
        from dovetail.api import compile as compile_model

        return self.run(compile_model(model, providers=["cpu"], logger=_Silence()), feed)

    def run(self, engine: Engine, feed: Feed) -> dict[str, Any]:
        """The outputs of a run, by name."""
        results = engine(**feed)
        names = [tensor.name for tensor in engine.manifest.outputs]
        return {names[0]: results} if len(names) == 1 else dict(results)

    def compare(self, what: str, results: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Check results against those of ``cpu``.

        Raises:
            Broken: One differs in type, shape or numbers.
        """
        for name, right in expected.items():
            got, wanted = np.asarray(results[name]), np.asarray(right)
            if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
                raise Broken(f"{what}: '{name}' is {describe(got)}, expected {describe(wanted)}")
            if not _is_near(got, wanted, self.tolerance):
                raise Broken(f"{what}: '{name}' differs from cpu by up to {_distance(got, wanted):.3g}")

    def close(self) -> None:
        """Let go of all engines."""
        for engine in self._engines.values():
            if isinstance(engine, Engine):
                try:
                    engine.close()
                except Exception:  # noqa: BLE001, S112 - the rules about closing have judged that
                    continue
        self._engines.clear()

    @contextmanager
    def _record(self) -> Iterator[None]:
        """Keep what the provider builds and is given to load; its own methods do the work."""
        provider = self.provider
        for name in ("build_kernel", "build_partition"):
            setattr(provider, name, _keep_built(self.recording, name, getattr(provider, name)))
        for name in ("load_kernel", "load_partition"):
            setattr(provider, name, _keep_load(self.recording, name, getattr(provider, name)))
        try:
            yield
        finally:
            for name in ("build_kernel", "build_partition", "load_kernel", "load_partition"):
                delattr(provider, name)


def _keep_built(recording: LogRecording, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def build(*arguments: Any) -> Any:
        try:
            built = method(*arguments)
        except Exception as error:
            recording.failures.append((name, error))
            raise
        recording.built.append((name, built))
        return built

    return build


def _keep_load(recording: LogRecording, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def load(stored: Any) -> Any:
        if len(stored.payload):
            recording.loads.append((method, stored))
        made = method(stored)
        if name == "load_partition":
            recording.loaded.append(weakref.ref(made))
        return made

    return load


def overrides(provider: Provider, name: str) -> bool:
    """Whether a provider has a callback of its own."""
    return getattr(type(provider), name) is not getattr(Provider, name)


def describe(array: Any) -> str:
    """The type and shape of an array."""
    return f"{array.dtype.name} {array.shape}"


def _is_near(got: Any, wanted: Any, tolerance: float) -> bool:
    if got.dtype.kind in "fV" and got.dtype.itemsize < 4:
        tolerance = max(tolerance, 2e-2)
    if got.dtype.kind in "fcV":
        return bool(
            np.allclose(got.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance, equal_nan=True)
        )
    return bool(np.array_equal(got, wanted))


def _distance(got: Any, wanted: Any) -> float:
    with np.errstate(all="ignore"):
        differences = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    return float(np.nanmax(differences)) if differences.size and not np.isnan(differences).all() else float("nan")
