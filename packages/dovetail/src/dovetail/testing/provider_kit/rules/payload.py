"""Rules about what plans bring back: P25 to P28."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.errors import DovetailError
from dovetail.provider.calls import first_line
from dovetail.rules import Broken, NotJudged, NotOffered
from dovetail.testing.provider_kit.models import MODELS
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []

_OTHER_VERSION = "0.0-of-the-kit"


@rule(
    "P25",
    "A plan gives the same results after it was stored and loaded",
    why="An engine is built once and loaded often.",
    fix="put everything that running needs into the payload, the weights and the code",
)
def judge_round_trip(subject: CheckedProvider) -> str:
    """Store, load and run every model."""
    from dovetail.runtime.loading import Runtime

    done = 0
    for case in MODELS:
        try:
            engine = subject.build(case)
        except (NotOffered, NotJudged):
            continue
        runtime = Runtime(provider_options={subject.name: subject.options} if subject.options else None)
        loaded = runtime.deserialize_cuda_engine(bytes(engine.serialize()))
        for feed in case.make_feeds():
            subject.compare(f"'{case.name}' after loading", subject.run(loaded, feed), subject.run(engine, feed))
        loaded.close()
        done += 1
    if not done:
        raise NotOffered("it takes nothing of any of the kit's models")
    return f"{done} plans"


def _loads(subject: CheckedProvider) -> list[tuple[Callable[[Any], Any], Any]]:
    """What was loaded that had a payload, one of each model at most."""
    for case in MODELS:
        subject.build_failure(case)
    _ = subject.provider
    found = subject.recording.loads[:3]
    if not found:
        raise NotOffered("it stores no payloads")
    return found


def _load(load: Callable[[Any], Any], stored: Any) -> Any:
    """What loading gives; None for a DovetailError, which is how to refuse."""
    try:
        loaded = load(stored)
    except DovetailError:
        return None
    except Exception as error:
        raise Broken(
            f"{load.__name__} raised {type(error).__name__}: {first_line(error)}, expected a DovetailError"
        ) from error
    return loaded


def _close(loaded: Any) -> None:
    if hasattr(loaded, "close"):
        loaded.close()


@rule(
    "P26",
    "A payload of another version is refused in words, or taken with a note",
    why="Plans outlive versions; reading an old payload as a new one gives wrong results.",
    fix="compare stored.version, and raise ProviderError with what to do, or set LoadedPartition.note",
)
def judge_version(subject: CheckedProvider) -> str:
    """Load with another version."""
    loads = _loads(subject)
    for load, stored in loads:
        if not stored.version:
            raise Broken("what it built has no version")
        try:
            loaded = load(replace(stored, version=_OTHER_VERSION))
        except DovetailError as error:
            if "version" not in str(error).lower():
                raise Broken(f"the error says nothing of versions: {first_line(error)}") from error
        else:
            note = getattr(loaded, "note", None)
            _close(loaded)
            if not note:
                raise Broken("a payload of another version is loaded without a word")
    return f"built by {loads[0][1].version}"


@rule(
    "P27",
    "A damaged payload is refused with a DovetailError",
    why="Files are cut short and come from strangers.",
    fix="check length, version and contents before use, and raise PlanCorruptError or ProviderError",
)
def judge_damage(subject: CheckedProvider) -> str:
    """Load payloads that are cut, empty, changed, or noise."""
    tried = 0
    for load, stored in _loads(subject):
        for what, payload, must_fail in _damages(bytes(stored.payload)):
            loaded = _load(load, replace(stored, payload=memoryview(payload)))
            _close(loaded)
            tried += 1
            if loaded is not None and must_fail:
                raise Broken(f"a payload that is {what} is loaded")
    return f"{tried} payloads"


def _damages(payload: bytes) -> list[tuple[str, bytes, bool]]:
    """What, the bytes, and whether it must be refused; a changed byte may be one that does not matter."""
    middle = len(payload) // 2
    flips = [i * (len(payload) - 1) // 11 for i in range(12)]
    changed = [payload[:i] + bytes([payload[i] ^ 0x5A]) + payload[i + 1 :] for i in sorted(set(flips))]
    return [
        ("empty", b"", True),
        ("noise", bytes((i * 37 + 11) % 251 for i in range(len(payload))), True),
        ("cut in the middle", payload[:middle], len(payload) > 1),
        *(("changed", each, False) for each in changed),
    ]


@rule(
    "P28",
    "A partition whose weights do not come is refused",
    why="A plan that was put together wrongly must not run over missing memory.",
    fix="check that every weight the payload names is in stored.weights, with the type and shape it needs",
)
def judge_weights(subject: CheckedProvider) -> str:
    """Load without each weight."""
    found = [(load, stored) for load, stored in _loads(subject) if getattr(stored, "weights", None)]
    if not found:
        raise NotOffered("its payloads need no weights from outside")
    for load, stored in found:
        loaded = _load(load, replace(stored, weights={}))
        _close(loaded)
        if loaded is not None:
            raise Broken(f"step '{stored.name}' is loaded without its weights {', '.join(stored.weights)}")
    return f"{len(found)} partitions"
