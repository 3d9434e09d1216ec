"""How a model is to be served: ``config.toml`` as frozen dataclasses, each key checked when it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dovetail.files import read_bytes
from dovetail_serve.repository.problems import ModelConfigError
from dovetail_serve.repository.tables import TableReader

__all__ = [
    "BuildSettings",
    "ModelSettings",
    "PaddedDimension",
    "VersionPolicy",
    "WarmUpSample",
    "parse_settings",
    "read_settings",
]

Shape = tuple[int, ...]

_MOST_CONFIG_BYTES: Final = 1 << 20
_MOST_SIZE: Final = 1 << 40
_MOST_US: Final = 3_600_000_000
BATCHING: Final = ("measure", "always")


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How an ONNX model becomes a plan; a change builds it anew."""

    providers: tuple[str, ...] = ()
    """Back ends in order of preference; empty for the default ones."""
    precision: str = ""
    """Such as ``fp16``; empty for the types of the model."""
    strict: bool = False
    rivals: bool = False
    shapes: Mapping[str, tuple[Shape, Shape, Shape]] = field(default_factory=dict)
    """The least, usual and greatest shape of inputs; without any the engine takes every shape."""


@dataclass(frozen=True, kw_only=True)
class VersionPolicy:
    """Which versions of a model are served.

    >>> VersionPolicy(latest=2).choose(["1", "2", "10"])
    ['2', '10']
    """

    latest: int = 1
    """So many of the highest; 0 for all."""
    chosen: tuple[int, ...] = ()
    """These alone, where any are named."""

    def choose(self, versions: Sequence[str]) -> list[str]:
        """The versions to serve, the oldest first; those that were named may not be there."""
        if self.chosen:
            return [str(number) for number in sorted(self.chosen)]
        ordered = sorted(versions, key=int)
        return ordered[-self.latest :] if self.latest else ordered


@dataclass(frozen=True, kw_only=True)
class PaddedDimension:
    """A dimension in which requests of different sizes are padded, so that they run together."""

    inputs: Mapping[str, int]
    """Input -> axis. All of them have one size in a request."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Output -> axis that is cut back to the size of the request."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Input -> what it is padded with; 0 unless it is named."""
    multiple: int = 1
    """Sizes are rounded up to a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class WarmUpSample:
    """What a model runs on before it takes requests."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Input -> the shape to make values up for."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Input -> a .npy file in the folder of the model."""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Everything that ``config.toml`` says."""

    instances: int = 1
    """How many requests or batches run at once, each on a thread and a context of its own."""
    threads: int = 0
    """Threads of each provider that has such an option; 0 for the provider's default."""
    max_batch_size: int = 0
    """How many samples run together at most; 0 for requests one by one."""
    batching: str = "measure"
    """``measure``: only as many samples as were measured to pay; ``always``: up to ``max_batch_size``."""
    max_queue_delay_us: int = 0
    """How long a request may wait for others to run with."""
    max_queue_size: int = 1000
    """How many requests may wait."""
    default_timeout_us: int = 0
    """How long a request may wait that does not say it itself; 0 for as long as it takes."""
    default_priority: int = 10
    """The priority of requests that have none; smaller runs earlier."""
    versions: VersionPolicy = VersionPolicy()
    build: BuildSettings = BuildSettings()
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    padding: tuple[PaddedDimension, ...] = ()
    warmup: tuple[WarmUpSample, ...] = ()


def read_settings(path: Path | None, name: str) -> ModelSettings:
    """The settings of a model; the default ones where it has no file.

    Raises:
        ModelConfigError: The file cannot be read, is no TOML, or says what cannot be.
    """
    where = f"{name}/config.toml"
    if path is None:
        return ModelSettings()
    try:
        data = read_bytes(path, _MOST_CONFIG_BYTES)
    except OSError as error:
        raise ModelConfigError("it cannot be read", where=where, got=error.strerror or type(error).__name__) from error
    if len(data) > _MOST_CONFIG_BYTES:
        raise ModelConfigError("it is too large", where=where, expected=f"at most {_MOST_CONFIG_BYTES} bytes")
    return parse_settings(data, where)


def parse_settings(data: bytes, where: str = "config.toml") -> ModelSettings:
    """The settings that TOML says.

    >>> parse_settings(b"max_batch_size = 8").max_batch_size
    8

    Raises:
        ModelConfigError: It is no TOML, or a key, a type or a value is wrong.
    """
    try:
        table = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ModelConfigError(f"it is no TOML: {error}", where=where) from error
    except RecursionError as error:
        raise ModelConfigError("its values are nested too deeply", where=where) from error
    return _read_all(TableReader(table, where))


def _read_all(table: TableReader) -> ModelSettings:
    settings = ModelSettings(
        instances=table.integer("instances", 1, least=1, most=256),
        threads=table.integer("threads", 0, least=0, most=1024),
        max_batch_size=table.integer("max_batch_size", 0, least=0, most=1 << 16),
        batching=table.text("batching", "measure", known=BATCHING),
        max_queue_delay_us=table.integer("max_queue_delay_us", 0, least=0, most=_MOST_US),
        max_queue_size=table.integer("max_queue_size", 1000, least=1, most=1 << 20),
        default_timeout_us=table.integer("default_timeout_us", 0, least=0, most=_MOST_US),
        default_priority=table.integer("default_priority", 10, least=1, most=1 << 31),
        versions=_read_policy(table),
        build=_read_build(table.table("build")),
        provider_options=table.mapping("provider_options", _read_options),
        padding=tuple(_read_padding(each) for each in table.tables("padding")),
        warmup=tuple(_read_warmup(each) for each in table.tables("warmup")),
    )
    table.finish()
    _check_use(settings, table)
    return settings


def _check_use(settings: ModelSettings, table: TableReader) -> None:
    """Refuse what could have no effect."""
    for key, is_set in (
        ("max_queue_delay_us", settings.max_queue_delay_us > 0),
        ("padding", bool(settings.padding)),
        ("batching", settings.batching == "always"),
    ):
        if is_set and not settings.max_batch_size:
            fix = "set max_batch_size, or leave it out"
            raise table.refuse(key, "it has no effect without max_batch_size", fix=fix)


def _read_policy(table: TableReader) -> VersionPolicy:
    value = table.get("versions", {"latest": 1})
    if value == "all":
        return VersionPolicy(latest=0)
    if isinstance(value, list) and value:
        return VersionPolicy(chosen=table.integers("versions", least=1, most=10**18 - 1))
    if isinstance(value, dict) and set(value) == {"latest"}:
        return VersionPolicy(latest=table.table("versions").integer("latest", 1, least=1, most=1000))
    raise table.refuse("versions", "no policy of versions", '"all", { latest = 2 }, or a list such as [1, 3]')


def _read_build(table: TableReader) -> BuildSettings:
    settings = BuildSettings(
        providers=table.texts("providers"),
        precision=table.text("precision", ""),
        strict=table.flag("strict", False),
        rivals=table.flag("rivals", False),
        shapes=table.mapping("shapes", _read_bounds),
    )
    table.finish()
    return settings


def _read_bounds(table: TableReader, name: str) -> tuple[Shape, Shape, Shape]:
    value = table.get(name)
    if _is_shape(value):
        return (tuple(value),) * 3
    if isinstance(value, list) and len(value) == 3 and all(_is_shape(each) for each in value):
        least, usual, most = (tuple(each) for each in value)
        return least, usual, most
    raise table.refuse(name, "no shapes", "one shape such as [1, 3], or three: [[1, 3], [4, 3], [8, 3]]")


def _read_shape(table: TableReader, name: str) -> Shape:
    value = table.get(name)
    if not _is_shape(value):
        raise table.refuse(name, "no shape", "a list of sizes, such as [1, 3]")
    return tuple(value)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MOST_SIZE for size in value
    )


def _read_options(table: TableReader, provider: str) -> dict[str, str]:
    def read(options: TableReader, key: str) -> str:
        value = options.get(key)
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise options.refuse(key, "not an option's value", "a text or a whole number")
        return str(value)

    return table.mapping(provider, read)


def _read_axis(table: TableReader, name: str) -> int:
    return table.integer(name, 0, least=1, most=64)


def _read_number(table: TableReader, name: str) -> float:
    value = table.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise table.refuse(name, "not a number", "a number to pad with")
    return value


def _read_padding(table: TableReader) -> PaddedDimension:
    padded = PaddedDimension(
        inputs=table.mapping("inputs", _read_axis),
        outputs=table.mapping("outputs", _read_axis),
        values=table.mapping("values", _read_number),
        multiple=table.integer("multiple", 1, least=1, most=1 << 20),
    )
    table.finish()
    if not padded.inputs:
        raise table.refuse("inputs", "no input is padded", "such as { ids = 1 }")
    for name in padded.values:
        if name not in padded.inputs:
            raise table.refuse("values", f"'{name}' is not padded", ", ".join(padded.inputs))
    return padded


def _read_file(table: TableReader, name: str) -> str:
    value = table.text(name, "")
    parts = value.split("/")
    if not value.endswith(".npy") or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise table.refuse(name, "no file of the model's folder", "such as 'warmup/x.npy'")
    return value


def _read_warmup(table: TableReader) -> WarmUpSample:
    sample = WarmUpSample(
        shapes=table.mapping("shapes", _read_shape),
        files=table.mapping("files", _read_file),
        count=table.integer("count", 1, least=1, most=10_000),
    )
    table.finish()
    return sample
