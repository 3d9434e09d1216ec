"""Objects that reject attributes which their class does not have, as objects of compiled bindings do."""

from __future__ import annotations

from typing import NoReturn

from dovetail.near_names import name_known, suggest

__all__ = ["StrictAttributes"]


class StrictAttributes:
    """Base class whose instances raise AttributeError when an unknown attribute is set.

    Every subclass in this project declares ``__slots__``. A subclass without them, such as one in a user's program, has
    a ``__dict__``, so that its instances accept any attribute.

    >>> class Point(StrictAttributes):
    ...     __slots__ = ("x_size",)
    >>> Point().x_sise = 1
    Traceback (most recent call last):
    AttributeError: 'Point' object has no attribute 'x_sise'
      fix: did you mean 'x_size'?
    """

    __slots__ = ("__weakref__",)

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            if hasattr(type(self), name):  # it has the attribute and no setter, or its setter raised
                raise
            _refuse(self, name)


def _refuse(instance: object, name: str) -> NoReturn:
    kind = type(instance)
    known = [each for each in dir(kind) if not each.startswith("_")]
    settable = [each for each in known if hasattr(getattr(kind, each), "__set__") and not _is_read_only(kind, each)]
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if settable:
        text += f"\n  fix: {suggest(name, settable) or suggest(name, known) or f'set one of {name_known(settable)}'}"
    raise AttributeError(text, name=name, obj=instance)


def _is_read_only(kind: type, name: str) -> bool:
    attribute = getattr(kind, name)
    return isinstance(attribute, property) and attribute.fset is None
