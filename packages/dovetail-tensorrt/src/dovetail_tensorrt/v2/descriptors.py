"""Descriptors as V2 plugins see them: one shape for each tensor, with or without its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = ["TranslatedDescs", "at_shape", "bounded_by_shape", "drop_batch", "read_desc", "read_unbatched_desc"]


class TranslatedDescs(Sequence[PluginTensorDesc]):
    """Proposals of formats, each translated when it is read, so that nothing above the asked position is touched."""

    def __init__(
        self,
        in_out: Sequence[DynamicPluginTensorDesc],
        translate: Callable[[DynamicPluginTensorDesc], PluginTensorDesc],
    ) -> None:
        self._in_out, self._translate = in_out, translate

    def __len__(self) -> int:
        return len(self._in_out)

    @overload
    def __getitem__(self, index: int) -> PluginTensorDesc: ...
    @overload
    def __getitem__(self, index: slice) -> list[PluginTensorDesc]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._translate(desc) for desc in self._in_out[index]]
        return self._translate(self._in_out[index])


def read_desc(dynamic: DynamicPluginTensorDesc) -> PluginTensorDesc:
    """The proposal itself."""
    return dynamic.desc


def read_unbatched_desc(dynamic: DynamicPluginTensorDesc) -> PluginTensorDesc:
    """The proposal without its batch; an invalid one, which stands above the asked position, as it is."""
    desc = dynamic.desc
    return desc if not desc.dims.is_valid else at_shape(desc, drop_batch(desc.dims))


def at_shape(desc: PluginTensorDesc, shape: Sequence[int] | Dims) -> PluginTensorDesc:
    """A descriptor like this one with another shape.

    >>> tuple(at_shape(PluginTensorDesc((-1, 3)), (8, 3)).dims)
    (8, 3)
    """
    twin = desc.copy()
    twin.dims = Dims(shape)
    return twin


def drop_batch(shape: Sequence[int] | Dims) -> Dims:
    """A shape without its first dimension.

    >>> tuple(drop_batch((8, 3, 4)))
    (3, 4)
    """
    return Dims(tuple(shape)[1:])


def bounded_by_shape(desc: PluginTensorDesc) -> DynamicPluginTensorDesc:
    """The descriptor of a run in the form of the build phase: its shape is all three bounds."""
    return DynamicPluginTensorDesc(desc.copy(), desc.dims, desc.dims, desc.dims)
