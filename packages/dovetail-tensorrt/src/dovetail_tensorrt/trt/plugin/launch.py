"""How a kernel is launched: the shape of its grid and blocks, as symbolic integers."""

from __future__ import annotations

from typing import Any, Final

from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import SymInt32, SymIntExpr

__all__ = ["KernelLaunchParams"]

_FIELDS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")


class KernelLaunchParams:
    """The grid, the block and the dynamic shared memory of a launch; each may be an expression.

    >>> KernelLaunchParams(grid_x=3).grid_x
    SymInt32(3)
    """

    __slots__ = tuple(f"_{name}" for name in _FIELDS)

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
        if name not in _FIELDS:
            raise AttributeError(f"KernelLaunchParams has no '{name}'; it has {', '.join(_FIELDS)}")
        if isinstance(value, SymIntExpr) and value.is_size_tensor:
            raise DecoratorError(f"'{name}' cannot depend on a size that the kernel tells", got=value)
        object.__setattr__(self, f"_{name}", value if isinstance(value, SymInt32) else SymInt32(value))

    def __getattr__(self, name: str) -> SymInt32:
        if name in _FIELDS:
            value: SymInt32 = object.__getattribute__(self, f"_{name}")
            return value
        raise AttributeError(f"KernelLaunchParams has no '{name}'; it has {', '.join(_FIELDS)}")

    def __repr__(self) -> str:
        return f"KernelLaunchParams({', '.join(f'{name}={getattr(self, name).expr}' for name in _FIELDS)})"
