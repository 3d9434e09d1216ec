"""What is fuzzed: where cases start from, how they are changed, and what is done with each.

A case is bytes. Doing something with one gives a word for what became of it, or raises what nobody may see.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from dovetail.errors import DovetailError, InternalError

__all__ = ["CORPUS", "TARGETS", "FuzzTarget", "read_corpus", "signature_of"]

CORPUS: Final = Path(__file__).parent / "corpus"
MAX_KEPT_BYTES: Final = 2048
"""Larger cases are not kept: the corpus lies in the repository."""
_RUN_SECONDS: Final = 2.0
_RUN_BYTES: Final = 256 << 20
_MAX_ELEMENTS: Final = 1 << 16


def read_corpus(name: str) -> dict[str, bytes]:
    """The kept cases of a target by what they are kept for."""
    path = CORPUS / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {signature: base64.b64decode(data) for signature, data in found.items()}


def signature_of(error: DovetailError) -> str:
    """What kind of end a case came to: the class and the words of the message, without names and numbers."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)|\[[^\]]*\]|-?[\d.]+(e[+-]?\d+)?", "_", error.what.splitlines()[0])
    return f"{type(error).__name__}: {text[:80]}"


class FuzzTarget(ABC):
    """One kind of file that strangers send."""

    name: str

    @abstractmethod
    def seeds(self) -> list[bytes]:
        """Right files to start from."""

    @abstractmethod
    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        """A changed file."""

    @abstractmethod
    def use(self, data: bytes, rng: random.Random) -> str:
        """Do with a file what people do; errors of Dovetail may be raised."""

    def run(self, data: bytes, rng: random.Random) -> str:
        """What became of a case; raises what is no named error."""
        try:
            return self.use(data, rng)
        except InternalError:
            raise
        except DovetailError as error:
            _check_message(error)
            return signature_of(error)


def _check_message(error: DovetailError) -> None:
    shown = str(error)
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown):
        raise AssertionError(f"a message with control characters: {shown!a}")
    if len(shown) > 1_000_000:
        raise AssertionError(f"a message of {len(shown)} characters")


def _flip_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        choice, place = rng.random(), rng.randrange(len(changed) + 1)
        if choice < 0.5 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif choice < 0.6:
            del changed[place:]
        elif choice < 0.8:
            changed[place : place + rng.randrange(9)] = rng.choice(
                (b"", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\0" * 4)
            )
        else:
            low = rng.randrange(len(changed) + 1)
            changed[place:place] = changed[low : low + rng.randrange(40)]
    return bytes(changed)


class ModelTarget(FuzzTarget):
    """ONNX models: imported, built, run."""

    name = "models"

    def seeds(self) -> list[bytes]:
        """The models of onnx's node tests, those of the damage tests, and the corpus."""
        return [*_node_models(), *read_corpus(self.name).values()]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        """Change fields of messages mostly, and bytes sometimes."""
        from tests.fuzz.messages import mutate_message

        if rng.random() < 0.1:
            return _flip_bytes(data, rng)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
            mutate_message(model, rng)
            return model.SerializeToString()
        except Exception:  # noqa: BLE001 - a kept case need not be a model
            return _flip_bytes(data, rng)

    def use(self, data: bytes, rng: random.Random) -> str:
        """Build with one of the providers and run what was built."""
        import dovetail
        from dovetail.loggers import ILogger

        class Silent(ILogger):
            def log(self, severity: Any, msg: str) -> None:
                return

        provider = rng.choice(("cpu", "onnxruntime"))
        with dovetail.compile(data, providers=[provider], logger=Silent()) as engine:
            repr(engine)
            inputs = [_make_input(engine, tensor, rng) for tensor in engine.manifest.inputs]
            if any(array is None for array in inputs):
                return "built"
            engine.run_limits = dovetail.RunLimits(time_s=_RUN_SECONDS, memory_bytes=_RUN_BYTES)
            engine(*inputs)
            return "ran"


@cache
def _node_models() -> list[bytes]:
    from onnx.backend.test.case.node import collect_testcases

    from tests.adversarial.network.mutations import make_mutation

    cases = [case.model.SerializeToString() for case in collect_testcases(None) if case.model is not None]
    return [case for case in cases if len(case) < 6000] + [make_mutation(number)[1] for number in range(0, 60, 2)]


def _make_input(engine: Any, tensor: Any, rng: random.Random) -> Any:
    """A small array for an input; None for an object, and for what would be large."""
    if tensor.type or tensor.dims is None:
        return None
    shape = [dim if dim >= 0 else rng.choice((1, 2, 3)) for dim in engine.get_tensor_shape(tensor.name)]
    if math.prod(max(dim, 1) for dim in shape) > _MAX_ELEMENTS:
        return None
    dtype = np.dtype(tensor.dtype)
    values = np.random.default_rng(rng.randrange(2**32)).integers(-3, 4, shape)
    return values.astype(dtype)


class PlanTarget(FuzzTarget):
    """Plans whose manifests are changed and whose digests are right again: loaded, run over memory with guard pages."""

    name = "plans"

    def seeds(self) -> list[bytes]:
        """One case for each plan; what it starts from is the plan itself."""
        from tests.support.attack_plans import TARGETS as PLANS

        return [name.encode() for name in PLANS]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        """A case is the name of a plan and the number that its changes follow from."""
        return data.split(b"/")[0] + b"/%d" % rng.randrange(2**63)

    def use(self, data: bytes, rng: random.Random) -> str:
        """Change, load and run."""
        from tests.support.attack_plans import attack_device, target
        from tests.support.plan_fuzz import run_case

        name, _, number = data.decode().partition("/")
        with attack_device():
            outcome = run_case(target(name), random.Random(number))
        if "InternalError" in outcome:
            raise AssertionError(outcome)
        return outcome


class FileTarget(FuzzTarget):
    """Everything else that is read: containers, manifests, caches, journals, libraries, arrays."""

    name = "files"

    def seeds(self) -> list[bytes]:
        """One right file of each kind, with the name of the kind before it."""
        return [*_right_files(), *read_corpus(self.name).values()]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        """Change bytes, or a JSON text by its structure."""
        kind, _, content = data.partition(b"\n")
        if rng.random() < 0.5:
            return kind + b"\n" + _flip_bytes(content, rng)
        return kind + b"\n" + _mutate_json(content, rng)

    def use(self, data: bytes, rng: random.Random) -> str:
        """Read it as what it says it is."""
        kind, _, content = data.partition(b"\n")
        _READERS[kind.decode()](content)
        return f"{kind.decode()} read"


def _mutate_json(content: bytes, rng: random.Random) -> bytes:
    from tests.support.plan_fuzz import mutate_json

    start = content.find(b"{")
    try:
        value, end = json.JSONDecoder().raw_decode(content[start:].decode())
    except (ValueError, RecursionError):
        return _flip_bytes(content, rng)
    if not isinstance(value, dict) or not value:
        return _flip_bytes(content, rng)
    mutate_json(value, rng)
    text = json.dumps(value).encode()
    before = content[:start]
    if start == 8:  # a container: the length of its header stands before it
        before = len(text).to_bytes(8, "little")
    return before + text + content[start + len(content[start:].decode()[:end].encode()) :]


@cache
def _right_files() -> list[bytes]:
    import io

    from PIL import Image

    from dovetail.build.calibrate.calibration_cache import encode_cache
    from dovetail.build.tune.cache import TimingCache, TimingValue
    from dovetail.build.tune.codec import encode_line
    from tests.support.attack_plans import target

    cache_ = TimingCache()
    cache_.update("key", TimingValue(time_us=1.5))
    cache_.update("other", TimingValue(status="failed", reason="no"))
    plan = target("open")
    array = io.BytesIO()
    np.save(array, np.arange(6, dtype=np.float32).reshape(2, 3))
    image = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(image, "PNG")
    files = {
        "container": plan.raw,
        "manifest": json.dumps(plan.manifest).encode(),
        "timing": cache_.serialize(),
        "journal": encode_line("key", TimingValue(time_us=2.0)) * 3,
        "calibration": encode_cache("MINMAX", {"x": (-1.0, 2.0), "y": None}),
        "library": b'{"type":"dovetail-library/1","is_package":false,"sources":{"a.py":"x = 1"},"data":{}}',
        "array": array.getvalue(),
        "image": image.getvalue(),
        "json": b'{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, "nan"]}]}',
    }
    return [kind.encode() + b"\n" + content for kind, content in files.items()]


def _read_container(content: bytes) -> None:
    from dovetail.plan.container import PlanFile

    with PlanFile.from_bytes(content) as file:
        file.verify_padding()


def _read_manifest(content: bytes) -> None:
    from dovetail.plan.container import PlanFile
    from dovetail.plan.manifest import decode_manifest
    from dovetail.plan.verify.manifest_rules import verify_manifest
    from tests.support.attack_plans import target

    with PlanFile.from_bytes(target("open").raw) as file:
        verify_manifest(decode_manifest(content), file)


def _read_timing(content: bytes) -> None:
    from dovetail.build.tune.cache import TimingCache

    TimingCache(content).serialize()


def _read_journal(content: bytes) -> None:
    from dovetail.build.tune.codec import decode_lines

    decode_lines(content)


def _read_calibration(content: bytes) -> None:
    from dovetail.build.calibrate.calibration_cache import decode_cache

    decode_cache(content)


def _read_library(content: bytes) -> None:
    from dovetail.plugin.carried.payload import decode_payload

    decode_payload(content, where="library")


def _read_array(content: bytes) -> None:
    import tempfile

    from dovetail.inputs.array_files import read_array
    from dovetail.inputs.specs import InputSpec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        path.write_bytes(content)
        read_array(path, InputSpec(name="x", dtype="float32", dims=(2, 3)))


def _read_image(content: bytes) -> None:
    import tempfile

    from dovetail.expr import Constant
    from dovetail.inputs.images import read_image
    from dovetail.inputs.specs import InputSpec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.png")
        path.write_bytes(content)
        read_image(path, InputSpec(name="x", dtype="float32", dims=(Constant(1), Constant(3), None, None)))


def _read_json(content: bytes) -> None:
    import tempfile

    from dovetail.inputs.json_files import read_json_samples
    from dovetail.inputs.specs import InputSpec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_bytes(content)
        read_json_samples(path, [InputSpec(name="x", dtype="float32", dims=None)])


_READERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "container": _read_container,
    "manifest": _read_manifest,
    "timing": _read_timing,
    "journal": _read_journal,
    "calibration": _read_calibration,
    "library": _read_library,
    "array": _read_array,
    "image": _read_image,
    "json": _read_json,
}


class CudaTarget(FuzzTarget):
    """Plans and partitions of the CUDA provider, loaded and run on the fake driver, which checks every launch."""

    name = "cuda"

    def seeds(self) -> list[bytes]:
        """Return the names of plans and of partitions."""
        from tests.fuzz.cuda_plans import list_seeds

        return list_seeds()

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        """Return a name with the number that its changes follow from."""
        from tests.fuzz.cuda_plans import mutate_case

        return mutate_case(data, rng)

    def use(self, data: bytes, rng: random.Random) -> str:
        """Change, load and run."""
        from tests.fuzz.cuda_plans import run_case

        outcome = run_case(data)
        if "InternalError" in outcome:
            raise AssertionError(outcome)
        return outcome


TARGETS: Final[Mapping[str, FuzzTarget]] = {
    each.name: each for each in (ModelTarget(), PlanTarget(), FileTarget(), CudaTarget())
}
