"""How a kernel is launched: the shape of its grid and blocks, as symbolic integers."""

from __future__ import annotations

from typing import Any, Final, overload

from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import SymInt32, SymIntExpr

__all__ = ["KernelLaunchParams"]

_FIELDS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")


class _LaunchNumber:
    """One number of a launch, or an expression for it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, launch: None, owner: type) -> _LaunchNumber: ...
    @overload
    def __get__(self, launch: KernelLaunchParams, owner: type) -> SymInt32: ...
    def __get__(self, launch: KernelLaunchParams | None, owner: type) -> _LaunchNumber | SymInt32:
        if launch is None:
            return self
        value: SymInt32 = getattr(launch, f"_{self._name}")
        return value

    def __set__(self, launch: KernelLaunchParams, value: Any) -> None:
        if isinstance(value, SymIntExpr) and value.is_size_tensor:
            raise DecoratorError(f"'{self._name}' cannot depend on a size that the kernel tells", got=value)
        setattr(launch, f"_{self._name}", value if isinstance(value, SymInt32) else SymInt32(value))


class KernelLaunchParams:
    """The grid, the block and the dynamic shared memory of a launch; each may be an expression.

    >>> KernelLaunchParams(grid_x=3).grid_x
    SymInt32(3)
    """

    __slots__ = tuple(f"_{name}" for name in _FIELDS)

    grid_x = _LaunchNumber()
    grid_y = _LaunchNumber()
    grid_z = _LaunchNumber()
    block_x = _LaunchNumber()
    block_y = _LaunchNumber()
    block_z = _LaunchNumber()
    shared_mem = _LaunchNumber()

    def __init__(
        self,
        grid_x: Any = 1,
        grid_y: Any = 1,
        grid_z: Any = 1,
        block_x: Any = 1,
        block_y: Any = 1,
        block_z: Any = 1,
        shared_mem: Any = 0,
    ) -> None:
        given = (grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_mem)
        for name, value in zip(_FIELDS, given, strict=True):
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.removeprefix("_") not in _FIELDS:
            raise AttributeError(f"KernelLaunchParams has no '{name}'; it has {', '.join(_FIELDS)}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"KernelLaunchParams has no '{name}'; it has {', '.join(_FIELDS)}")

    def __repr__(self) -> str:
        return f"KernelLaunchParams({', '.join(f'{name}={getattr(self, name).expr}' for name in _FIELDS)})"
