"""The collection of broken plugins: each names the one rule it breaks and a part of what the checker must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dovetail.plugin.check import Report, check_creator
from dovetail.plugin.interfaces import IPluginCreatorV3One
from tests.null.plugin.check.good import creator_of

T = TypeVar("T", bound=type)


@dataclass(frozen=True)
class Fault:
    rule_id: str
    name: str
    says: str
    make_creator: Callable[[], Any]
    options: dict[str, Any] = field(default_factory=dict)

    def check(self) -> Report:
        given: dict[str, Any] = {"fields": {"alpha": 0.5}, "shapes": ["2x3x8x8", "1x3x8x8"], "types": ["FLOAT"]}
        return check_creator(self.make_creator(), **given | self.options)


FAULTS: list[Fault] = []


def breaks(rule_id: str, says: str, **options: Any) -> Callable[[T], T]:
    """Add a plugin or creator class to the collection."""

    def add(cls: T) -> T:
        is_creator = issubclass(cls, IPluginCreatorV3One)
        make: Callable[[], Any] = cls if is_creator else lambda: creator_of(cls)
        FAULTS.append(Fault(rule_id, cls.__name__, says, make, options))
        return cls

    return add
