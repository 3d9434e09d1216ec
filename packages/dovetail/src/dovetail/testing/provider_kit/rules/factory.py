"""Rules about the factory, its devices, and what it makes: P01 to P07."""

from __future__ import annotations

from typing import Any

from dovetail.errors import DovetailError, ProviderError
from dovetail.provider.interfaces import API_VERSION, Device, MemoryInfo, Provider, RefitMode, RewriteContext, StepKind
from dovetail.rules import Broken, NotJudged, NotOffered
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []


@rule(
    "P01",
    "The factory has a name, a version and the version of the contract",
    why="Plans store the names, and a provider for another contract would be called wrongly.",
    fix="set name, version (texts that are not empty) and api_version = dovetail.provider.interfaces.API_VERSION",
)
def judge_factory(subject: CheckedProvider) -> str:
    """Register it, and read who it is."""
    if subject.problem is not None:
        raise Broken(str(subject.problem))
    factory = subject.factory
    texts: list[tuple[str, Any]] = [("name", factory.name), ("version", factory.version)]
    for what, text in texts:
        if not isinstance(text, str) or not text:
            raise Broken(f"{what} is {text!r}, expected a text")
    if factory.api_version != API_VERSION:
        raise Broken(f"api_version is {factory.api_version!r}, expected {API_VERSION}")
    return f"{factory.name} {factory.version}"


@rule(
    "P02",
    "devices() lists devices, the same ones each time",
    why="Plans are tuned for a device, which they know by its fingerprint.",
    fix="return Device objects with a name, a kind, a fingerprint of the hardware, and ordinals that differ",
)
def judge_devices(subject: CheckedProvider) -> str:
    """List twice."""
    first, second = list(subject.factory.devices()), list(subject.factory.devices())
    if not first:
        raise Broken("devices() is empty: nothing can be judged on this machine")
    for device in first:
        _require_device(device)
    if len({device.ordinal for device in first}) != len(first):
        raise Broken("two devices have the same ordinal")
    if first != second:
        raise Broken("devices() gives other devices the second time")
    return ", ".join(device.name for device in first)


def _require_device(device: Any) -> None:
    if not isinstance(device, Device):
        raise Broken(f"devices() has {device!r}, expected a Device")
    if not device.name or not device.fingerprint:
        raise Broken(f"a device has name {device.name!r} and fingerprint {device.fingerprint!r}, expected texts")
    if device.kind not in ("cpu", "gpu", "npu"):
        raise Broken(f"device '{device.name}' is of kind {device.kind!r}, expected cpu, gpu or npu")


@rule(
    "P03",
    "create() makes a provider of the factory's name on the device it is given",
    why="Engines look providers up by name, and run on the device that was chosen.",
    fix="return an object that derives from Provider, with name and device set in __init__",
)
def judge_create(subject: CheckedProvider) -> None:
    """Make two."""
    if subject.problem is not None:
        raise NotJudged("the factory was refused, see P01")
    device = next(iter(subject.factory.devices()), None)
    if device is None:
        raise NotJudged("there is no device, see P02")
    for _ in range(2):
        made = subject.factory.create(device, dict(subject.options))
        if not isinstance(made, Provider):
            raise Broken(f"create() gave {type(made).__name__}, expected a Provider")
        if made.name != subject.factory.name:
            raise Broken(f"the provider's name is {made.name!r}, expected {subject.factory.name!r}")
        if made.device != device:
            raise Broken(f"the provider is on {made.device!r}, expected {device!r}")


@rule(
    "P04",
    "Options that do not exist are refused",
    why="A spelling mistake in an option would otherwise be lost without a word.",
    fix="raise ProviderError in create() for every option that is not known, naming it",
)
def judge_options(subject: CheckedProvider) -> None:
    """Make one with an option that nobody has."""
    _ = subject.provider
    device = next(iter(subject.factory.devices()))
    option = "no_such_option_of_the_kit"
    try:
        subject.factory.create(device, {**subject.options, option: "1"})
    except ProviderError as error:
        if option not in str(error):
            raise Broken(f"the error does not name the option: {error}") from error
    except Exception as error:
        raise Broken(f"create() raised {type(error).__name__}, expected ProviderError") from error
    else:
        raise Broken(f"create() took the option '{option}'")


@rule(
    "P05",
    "What the provider says of itself is in the words of the contract",
    why="Placement, planning and refit decide by these.",
    fix="use StepKind, RefitMode, MemoryInfo, 'NCHW' or 'NHWC', and a budget that is None or not negative",
)
def judge_attributes(subject: CheckedProvider) -> str:
    """Read the attributes."""
    provider = subject.provider
    _require("step_kind", provider.step_kind, (StepKind.NODE, StepKind.PARTITION))
    _require("refit_mode", provider.refit_mode, (RefitMode.IN_PLACE, RefitMode.RECREATE))
    _require("preferred_layout", provider.preferred_layout, ("NCHW", "NHWC"))
    memory: Any = provider.memory
    budget: Any = provider.budget_bytes
    if not isinstance(memory, MemoryInfo) or memory.alignment_bytes < 1 or memory.alignment_bytes.bit_count() != 1:
        raise Broken(f"memory is {memory!r}, expected a MemoryInfo whose alignment is a power of two")
    if budget is not None and (not isinstance(budget, int) or budget < 0):
        raise Broken(f"budget_bytes is {budget!r}, expected None or a number")
    if provider.can_capture:
        stream = provider.create_stream()
        if stream is None:
            raise Broken("can_capture is set, and create_stream() gives None")
        stream.close()
    return f"{provider.step_kind}s in {memory.name} memory"


def _require(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise Broken(f"{what} is {value!r}, expected one of {', '.join(allowed)}")


@rule(
    "P06",
    "The registry agrees with the schemas of its operators",
    why="A kernel for a version, type or attribute that the operator does not have is never found, or found wrongly.",
    fix="see what dovetail.provider.schemas.schema_check.check_registry says",
)
def judge_registry(subject: CheckedProvider) -> str:
    """Compare every kernel with its schema."""
    from dovetail.provider.schemas.schema_check import check_registry

    kernels = subject.provider.kernels
    if subject.provider.step_kind == StepKind.PARTITION:
        raise NotOffered("it compiles partitions, and its registry only lists operators")
    problems = check_registry(kernels)
    if problems:
        raise Broken(f"{len(problems)} problem(s), the first: {problems[0]}")
    return f"{len(kernels)} kernels"


@rule(
    "P07",
    "rewrite() leaves nodes alone that are not its own",
    why="A pass of one provider must not change what another one runs.",
    fix="ask context.is_own(node) before a node is changed, and give a line of text for each change",
)
def judge_rewrite(subject: CheckedProvider) -> None:
    """Offer a model of which nothing is its own."""
    import onnx_ir as ir

    from dovetail.testing.provider_kit.models import CHAIN

    proto = CHAIN.make_model()
    model = ir.from_proto(proto)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    lines = subject.provider.rewrite(model, RewriteContext(is_own=lambda node: False))
    if isinstance(lines, str) or any(not isinstance(line, str) for line in lines):
        raise Broken(f"rewrite() gave {lines!r}, expected a sequence of texts")
    try:
        after = ir.to_proto(model).SerializeToString(deterministic=True)
    except DovetailError:
        after = b""
    if after != before:
        raise Broken("rewrite() changed a node of somebody else")
