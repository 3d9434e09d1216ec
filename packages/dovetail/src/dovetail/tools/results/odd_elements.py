"""Elements that are no finite numbers: how many a value has, of which kind, and where the first of them are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["OddElements", "find_odd_elements"]

Array = npt.NDArray[Any]

_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class OddElements:
    """What is not finite in one array."""

    name: str
    size: int
    num_nan: int
    num_inf: int
    first: tuple[tuple[tuple[int, ...], str], ...]
    """The places of the first few, each with what is there."""
    sample: str = ""
    """Of which sample, where there are several."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = asdict(self)
        plain["first"] = [{"index": list(index), "value": value} for index, value in self.first]
        return plain

    def describe(self) -> str:
        """One line.

        >>> find_odd_elements({"y": np.float32([[1, np.nan]])})[0].describe()
        "output 'y': 1 NaN of 2 elements, at [0, 1]"
        """
        counts = [f"{count} {word}" for count, word in ((self.num_nan, "NaN"), (self.num_inf, "infinite")) if count]
        is_mixed = len(counts) > 1
        places = [
            f"[{', '.join(map(str, index))}]" + (f" ({value})" if is_mixed else "") for index, value in self.first
        ]
        more = ", ..." if self.num_nan + self.num_inf > len(self.first) else ""
        elements = "element" if self.size == 1 else "elements"
        sample = f" of sample '{self.sample}'" if self.sample else ""
        where = f"{', '.join(places)}{more}"
        return f"output '{self.name}'{sample}: {' and '.join(counts)} of {self.size} {elements}, at {where}"


def find_odd_elements(outputs: Mapping[str, Any]) -> list[OddElements]:
    """What is not finite in values by name; arrays in sequences and maps are named by their places."""
    found = (_look_at(name, array) for name, array in _arrays(outputs.items()))
    return [each for each in found if each is not None]


def _arrays(items: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Array]]:
    for name, value in items:
        if isinstance(value, list | tuple):
            yield from _arrays((f"{name}[{index}]", item) for index, item in enumerate(value))
        elif isinstance(value, Mapping):
            yield from _arrays((f"{name}[{key!r}]", item) for key, item in value.items())
        elif value is not None:
            yield name, np.asarray(value)


def _look_at(name: str, array: Array) -> OddElements | None:
    if array.dtype.kind in "OSUbiu":
        return None
    numbers = array if array.dtype.kind in "fc" else array.astype(np.float32)
    nan, inf = np.isnan(numbers), np.isinf(numbers)
    places = np.argwhere(nan | inf)
    if not places.size and not (nan | inf).any():
        return None
    first = tuple(tuple(int(axis) for axis in place) for place in places[:_SHOWN])
    return OddElements(
        name=name,
        size=array.size,
        num_nan=int(nan.sum()),
        num_inf=int(inf.sum()),
        first=tuple((place, str(numbers[place])) for place in first),
    )
