"""Looks after replicas: asks how they are, makes more or fewer of them, and has them load what has changed.

It is a thread of the process that deployed, which owns the replicas: when that process ends, Ray ends them. Ray starts
replicas again that died, at the ports they had.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.errors import DovetailError
from dovetail_serve.options import ServerOptions
from dovetail_serve.ray.cluster import import_ray
from dovetail_serve.ray.options import RayOptions
from dovetail_serve.ray.replica import Replica, ReplicaState
from dovetail_serve.ray.scaling import Scaler
from dovetail_serve.repository.scan import scan_repository
from dovetail_serve.repository.watching import RepositoryWatch

__all__ = ["Controller"]

_LOG: Final = logging.getLogger("dovetail_serve.ray")
_ANSWER_S: Final = 5.0
"""How long a replica may take to say how it is."""
_LOAD_S: Final = 600.0


class Controller:
    """Keeps as many replicas as there should be.

    Args:
        models: The folder, which every node sees.
        options: Those of each server.
        placement: How many replicas, and where.
    """

    def __init__(self, models: Path, options: ServerOptions, placement: RayOptions) -> None:
        self._ray = import_ray()
        self._models = models
        self._options = options
        self._placement = placement
        self._scaler = Scaler(placement)
        self._watch = RepositoryWatch()
        self._watch.note_all(scan_repository(models))
        self._actors: list[Any] = []
        self._states: list[ReplicaState | None] = []
        self._problems: dict[int, str] = {}
        self._begun: set[int] = set()
        """The replicas that have answered."""
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="dovetail-controller", daemon=True)

    def start(self) -> None:
        """Make the first replicas, and look after them from now on."""
        self.scale(self._placement.replicas)
        self._thread.start()

    @property
    def states(self) -> Sequence[ReplicaState | None]:
        """How each replica was when it was last asked; None for one that does not answer."""
        return list(self._states)

    @property
    def problems(self) -> dict[int, str]:
        """Why replicas could not begin."""
        return dict(self._problems)

    def look(self) -> None:
        """Ask every replica how it is."""
        with self._lock:
            asked = [actor.observe.remote() for actor in self._actors]
            self._states = [self._read(index, answer) for index, answer in enumerate(asked)]

    def _read(self, index: int, answer: Any) -> ReplicaState | None:
        errors = self._ray.exceptions
        try:
            state: ReplicaState = self._ray.get(answer, timeout=_ANSWER_S)
        except (errors.GetTimeoutError, errors.ActorUnavailableError):
            return None  # it begins, or begins again
        except errors.RayError as error:
            _LOG.error("replica %d: %s", index, _last_line(error))
            self._give_up(index, _last_line(error))
            return None
        self._begun.add(index)
        return state

    def _give_up(self, index: int, problem: str) -> None:
        """Ray starts a replica no more that fails as it begins: one that had begun before is made anew."""
        if index in self._begun:
            self._actors[index] = self._make(index)
        else:
            self._problems[index] = problem

    def scale(self, count: int) -> None:
        """Have so many replicas; those that are too many drain first."""
        with self._lock:
            while len(self._actors) < count:
                self._actors.append(self._make(len(self._actors)))
                self._states.append(None)
            spare, self._actors, self._states = self._actors[count:], self._actors[:count], self._states[:count]
        for actor in spare:
            self._end(actor)

    def _make(self, index: int) -> Any:
        placement = self._placement
        kind = self._ray.remote(Replica).options(
            name=f"{placement.name}-replica-{index}",
            num_cpus=placement.num_cpus,
            num_gpus=placement.num_gpus,
            max_restarts=-1,
            max_concurrency=4,  # it answers how it is while it loads a model
            scheduling_strategy="SPREAD",
        )
        _LOG.info("replica %d begins", index)
        return kind.remote(index, str(self._models), self._options, placement.plugins)

    def _end(self, actor: Any) -> bool:
        """Drain a replica and end it; whether every accepted request was answered."""
        try:
            return bool(self._ray.get(actor.stop.remote(), timeout=self._options.drain_s + _ANSWER_S))
        except self._ray.exceptions.RayError:
            return False
        finally:
            self._ray.kill(actor, no_restart=True)

    def update(self, model: str, *, is_there: bool = True) -> str | None:
        """Have one replica after the other load a model; why it stopped at one, if so.

        The first that cannot load it ends the update: it and those after it go on with what they have.
        """
        with self._lock:
            actors = list(self._actors)
        for index, actor in enumerate(actors):
            try:
                problem = self._ray.get(actor.apply.remote(model, is_there=is_there), timeout=_LOAD_S)
            except self._ray.exceptions.RayError as error:
                # A replica that died begins with what is in the folder now.
                _LOG.warning("replica %d could not be told of '%s': %s", index, model, _last_line(error))
                continue
            if problem is not None:
                _LOG.error("'%s' is not updated beyond replica %d: %s", model, index, problem)
                return f"replica {index}: {problem}"
        _LOG.info("'%s' is updated on %d replicas", model, len(actors))
        return None

    def stop(self) -> bool:
        """Drain all replicas at once and end them; whether every accepted request was answered."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            actors, self._actors, self._states = self._actors, [], []
        answers: list[bool] = []
        threads = [threading.Thread(target=lambda a=actor: answers.append(self._end(a))) for actor in actors]
        _run_all(threads)
        return all(answers)

    def _follow(self) -> None:
        while not self._stopped.wait(self._placement.poll_s):
            for step in (self.look, self._scale, self._update_changed):
                self._try(step)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except DovetailError as error:
            _LOG.error("%s", error)
        except Exception:  # noqa: BLE001 - replicas serve whatever happens here, and the next look may see more
            _LOG.exception("looking after replicas failed")

    def _scale(self) -> None:
        waiting = sum(state.waiting for state in self._states if state is not None)
        count = self._scaler.decide(len(self._actors), waiting=waiting, now_s=time.monotonic())
        if count != len(self._actors):
            _LOG.info("%d requests wait: from %d to %d replicas", waiting, len(self._actors), count)
            self.scale(count)

    def _update_changed(self) -> None:
        if not self._options.poll_s:
            return
        found = scan_repository(self._models)
        for model in self._watch.find_changed(found):
            self.update(model, is_there=model in found)


def _run_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _last_line(error: Exception) -> str:
    """What went wrong, without the frames of Ray."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else type(error).__name__
