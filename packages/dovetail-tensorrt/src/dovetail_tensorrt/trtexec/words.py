"""Reading a command line of ``trtexec``: words become options, or one error that names the word and what is near it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.errors import UsageError
from dovetail.near_names import find_near
from dovetail_tensorrt.trtexec.flags import FLAGS, Flag

__all__ = ["Bounds", "Options", "parse_words", "read_size"]

Shapes = dict[str, tuple[int, ...]]
_SIZE: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[BKMG]?)", re.IGNORECASE)
_UNITS: Final = {"": 1 << 20, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass
class Bounds:
    """The shapes of one profile."""

    min: Shapes = field(default_factory=dict)
    opt: Shapes = field(default_factory=dict)
    max: Shapes = field(default_factory=dict)

    def complete(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Min, opt and max of each input; what is left out is as opt, or as what is there."""
        names = dict.fromkeys((*self.min, *self.opt, *self.max))
        found = {}
        for name in names:
            given = [shapes[name] for shapes in (self.opt, self.max, self.min) if name in shapes]
            found[name] = tuple(shapes.get(name, given[0]) for shapes in (self.min, self.opt, self.max))
        return found


@dataclass
class Options:
    """A command line that was understood."""

    values: dict[str, Any] = field(default_factory=dict)
    profiles: list[Bounds] = field(default_factory=list)
    idle: list[Flag] = field(default_factory=list)
    """Flags that were given and change nothing."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a flag."""
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether a flag was given."""
        return name in self.values


def parse_words(words: Sequence[str]) -> Options:
    """Read a command line.

    >>> parse_words(["--onnx=a.onnx", "--shapes=x:1x3", "--fp16"]).values
    {'onnx': 'a.onnx', 'shapes': {'x': (1, 3)}, 'fp16': True}
    """
    options, position = Options(), 0
    for word in words:
        name, has_value, text = word.partition("=")
        flag = _find(name, word)
        value = _read(flag, text if has_value else None, word)
        if flag.name == "profile":
            position = value
        elif flag.name in ("minShapes", "optShapes", "maxShapes"):
            _add_bounds(options, position, flag.name, value)
        elif flag.name == "workspace":
            options.values.setdefault("memPoolSize", {})["workspace"] = text
        else:
            _add(options, flag, value, word)
    return options


def _find(name: str, word: str) -> Flag:
    if name in ("-h", "--help"):
        return FLAGS["help"]
    found = FLAGS.get(name[2:]) if name.startswith("--") else None
    if found is None:
        near = find_near(name.lstrip("-"), FLAGS, count=1)
        fix = f"did you mean --{near[0]}? " if near else ""
        raise UsageError(f"unknown option: {word}", where="trtexec", fix=f"{fix}--help lists all")
    return FLAGS[found.alias] if found.alias else found


def _add(options: Options, flag: Flag, value: Any, word: str) -> None:
    if flag.idle:
        options.idle.append(flag)
    elif flag.can_repeat:
        options.values.setdefault(flag.name, []).append(value)
    elif flag.kind in ("shapes", "pairs"):
        options.values.setdefault(flag.name, {}).update(value)
    elif flag.name in options.values and options.values[flag.name] != value:
        raise UsageError("an option is given twice", where="trtexec", got=word)
    else:
        options.values[flag.name] = value


def _add_bounds(options: Options, position: int, name: str, shapes: Shapes) -> None:
    if not 0 <= position <= len(options.profiles):
        raise UsageError("profiles are numbered from 0 without gaps", where="--profile", got=position)
    if position == len(options.profiles):
        options.profiles.append(Bounds())
    getattr(options.profiles[position], name[:3]).update(shapes)


def _read(flag: Flag, text: str | None, word: str) -> Any:
    if flag.kind == "switch":
        if text is not None:
            raise UsageError("this option takes no value", where="trtexec", got=word, fix=f"write --{flag.name}")
        return True
    if text is None or not text:
        raise UsageError("this option needs a value", where="trtexec", got=word, fix=f"--{flag.name}=... : {flag.help}")
    try:
        return _READERS[flag.kind](text)
    except ValueError as error:
        raise UsageError(
            f"the value cannot be read: {error}", where=f"--{flag.name}", got=text, fix=flag.help
        ) from None


def _split(text: str) -> list[str]:
    """The parts between commas; a name in quotes may have some itself.

    >>> _split("'a,b':1,c:2")
    ["'a,b':1", 'c:2']
    """
    return [part for part in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,])+", text) if part]


def _read_pair(part: str) -> tuple[str, str]:
    """A name and what stands behind its last colon outside of quotes."""
    quoted = re.fullmatch(r"(['\"])(?P<name>.*)\1:(?P<value>.*)", part)
    if quoted is not None:
        return quoted["name"], quoted["value"]
    name, colon, value = part.rpartition(":")
    if not colon or not name:
        raise ValueError(f"'{part}' is not name:value")
    return name, value


def _read_shapes(text: str) -> Shapes:
    return {name: _read_shape(value) for name, value in map(_read_pair, _split(text))}


def _read_shape(text: str) -> tuple[int, ...]:
    """A shape such as 1x3x224x224, or ``scalar``."""
    if text in ("scalar", ""):
        return ()
    sizes = tuple(int(part) for part in text.split("x"))
    if any(size < 0 for size in sizes):
        raise ValueError("a size is negative")
    return sizes


def _read_pairs(text: str) -> dict[str, str]:
    return dict(map(_read_pair, _split(text)))


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "int": int,
    "float": float,
    "shapes": _read_shapes,
    "pairs": _read_pairs,
    "list": _split,
}


def read_size(text: str) -> int:
    """A size in bytes, of MiB unless a unit says otherwise.

    >>> read_size("4"), read_size("2G"), read_size("0.5K")
    (4194304, 2147483648, 512)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError("a size is a number, and B, K, M or G behind it", where="--memPoolSize", got=text)
    return int(float(found["number"]) * _UNITS[found["unit"].upper()])
