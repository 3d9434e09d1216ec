"""Sizes that nobody set: what was taken instead, told in the same words by whoever has to take something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dovetail.errors import InputError
from dovetail.loggers import ILogger, Severity

__all__ = ["UnsetDim", "shapes_option", "tell_unset"]


_SHAPE: Final = "its shape"


@dataclass(frozen=True, kw_only=True)
class UnsetDim:
    """A dimension of an input that nobody gave a size.

    >>> print(UnsetDim(input="x", axis=0, name="n", size=1, set_with="--shapes x:1x4").describe())
    input 'x': nobody set dimension 0 ('n'), so 1 is taken; set it with shapes (--shapes x:1x4)
    """

    input: str
    axis: int | None
    """None where it is all of the input: its rank is not known, or it is a shape input without contents."""
    name: str | None
    """What the model calls the dimension."""
    size: int
    set_with: str
    """The option of the command line that sets it."""

    @property
    def what(self) -> str:
        """What has no size, in words."""
        if self.axis is None:
            return _SHAPE if self.set_with.startswith("--shapes") else "its contents, which decide shapes"
        return f"dimension {self.axis}" + ("" if self.name is None else f" ('{self.name}')")

    def describe(self) -> str:
        """One line: the input, the dimension, what was taken, and how to set it."""
        option = self.set_with.split()[0].removeprefix("--")
        taken = "a scalar" if self.what == _SHAPE else self.size
        return (
            f"input '{self.input}': nobody set {self.what}, so {taken} is taken; set it with {option} ({self.set_with})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def shapes_option(name: str, shape: Sequence[int]) -> str:
    """The option that gives an input this shape.

    >>> print(shapes_option("x", (1, 4)), shapes_option("a:0", ()))
    --shapes x:1x4 --shapes "'a:0':scalar"
    """
    sizes = "x".join(map(str, shape)) or "scalar"
    return f"--shapes \"'{name}':{sizes}\"" if set(name) & set(",: '\"") else f"--shapes {name}:{sizes}"


def tell_unset(unset: Iterable[UnsetDim], logger: ILogger, *, strict: bool = False) -> None:
    """Log a warning for each; with ``strict`` the first is an error.

    Raises:
        InputError: With ``strict``, that a size would have to be made up.
    """
    for dim in unset:
        if strict:
            raise InputError(
                f"nobody set {dim.what}",
                where=f"input '{dim.input}'",
                expected="a size, as the build is strict",
                fix=f"set it with {dim.set_with}",
            )
        logger.log(Severity.WARNING, dim.describe())
