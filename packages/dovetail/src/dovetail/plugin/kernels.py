"""Plugins that are one kernel of a device: what the author gives while a plan is built, and what the plan stores of it.

The grid, the block and the arguments are expressions over the dimensions of the inputs, so a loaded plan launches the
kernel for every shape without any code of the author's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.decoding import decode
from dovetail.errors import PlanCorruptError, PluginError, UsageError
from dovetail.expr import Constant, Expr, IDimensionExpr, SizeTensor, Symbol, compile_expr, decode_expr, encode_expr

__all__ = ["LAUNCHED", "KernelLaunch", "LaunchShape", "StoredLaunch", "decode_launch", "encode_launch"]

LAUNCHED: Final = "kernel"
"""What a plan calls the code of a plugin that is a kernel."""

_MAX_NAME_CHARS: Final = 4096
_MAX_ARGUMENTS: Final = 1024
_MAX_GRID: Final = 2**31 - 1
_MAX_THREADS: Final = 1024
_INT32: Final = range(-(2**31), 2**31)

Exprs3 = tuple[Expr, Expr, Expr]


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A kernel and how it is launched: what ``IPluginV3OneBuild.get_kernel_launch`` gives.

    The kernel gets the addresses of the inputs, then the arguments as 32-bit integers, then the addresses of the
    outputs.
    """

    name: str
    code: bytes
    """Code of the device, such as PTX or a cubin."""
    grid: Exprs3
    block: Exprs3
    shared_bytes: Expr
    arguments: tuple[Expr, ...] = ()

    @staticmethod
    def name_dimension(input_index: int, axis: int) -> Symbol:
        """What stands for a dimension of an input in the expressions.

        >>> KernelLaunch.name_dimension(0, 1)
        input0.1
        """
        return Symbol(f"input{input_index}.{axis}")


class _LaunchRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    grid: tuple[Any, Any, Any]
    block: tuple[Any, Any, Any]
    shared_bytes: Any
    arguments: list[Any]


_DECODER: Final = msgspec.json.Decoder(_LaunchRecord)


def encode_launch(launch: KernelLaunch, where: str) -> bytes:
    """The form that a plan stores, without the code; refused where the plan could not be run."""
    if not launch.name or len(launch.name) > _MAX_NAME_CHARS or not launch.code:
        raise PluginError("a kernel needs a name and code", where=where, got=repr(launch.name)[:60])
    exprs: list[Any] = [*launch.grid, *launch.block, launch.shared_bytes, *launch.arguments]
    if any(not isinstance(expr, IDimensionExpr) or isinstance(expr, SizeTensor) for expr in exprs):
        raise PluginError(
            "a launch is made of expressions over the dimensions of inputs", where=where, got=[str(e) for e in exprs]
        )
    record = _LaunchRecord(
        name=launch.name,
        grid=_encode_three(launch.grid),
        block=_encode_three(launch.block),
        shared_bytes=encode_expr(launch.shared_bytes),
        arguments=[encode_expr(expr) for expr in launch.arguments],
    )
    return msgspec.json.encode(record)


def _encode_three(exprs: Exprs3) -> tuple[Any, Any, Any]:
    first, second, third = exprs
    return encode_expr(first), encode_expr(second), encode_expr(third)


@dataclass(frozen=True, kw_only=True)
class LaunchShape:
    """A launch for shapes that are known."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do, as with inputs that have no elements."""
        return 0 in self.grid


@dataclass(frozen=True, kw_only=True)
class StoredLaunch:
    """A launch as a plan has it."""

    name: str
    exprs: tuple[Expr, ...]
    """Three of the grid, three of the block, the shared memory, and the arguments."""

    def at(self, input_shapes: Sequence[Sequence[int]], where: str) -> LaunchShape:
        """The launch for these shapes."""
        symbols = {f"input{i}.{axis}": size for i, shape in enumerate(input_shapes) for axis, size in enumerate(shape)}
        values = [self._compute(expr, symbols, where) for expr in self.exprs]
        shape = LaunchShape(
            grid=(values[0], values[1], values[2]),
            block=(values[3], values[4], values[5]),
            shared_bytes=values[6],
            arguments=tuple(values[7:]),
        )
        _check_shape(shape, where)
        return shape

    def _compute(self, expr: Expr, symbols: dict[str, int], where: str) -> int:
        try:
            function: Callable[[Sequence[int]], int] = compile_expr(expr, list(symbols))
            return function(list(symbols.values()))
        except UsageError as error:
            raise PluginError(f"the launch of kernel '{self.name}' has no value: {error.what}", where=where) from None


def _check_shape(shape: LaunchShape, where: str) -> None:
    is_grid = all(0 <= size <= _MAX_GRID for size in shape.grid)
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    is_block = all(size >= 1 for size in shape.block) and threads <= _MAX_THREADS
    if not is_grid or not is_block or shape.shared_bytes not in _INT32 or shape.shared_bytes < 0:
        raise PluginError(
            "a kernel cannot be launched like this",
            where=where,
            expected=f"a grid of 0 to {_MAX_GRID}, a block of 1 to {_MAX_THREADS} threads",
            got=shape,
        )
    for argument in shape.arguments:
        if argument not in _INT32:
            raise PluginError("an argument of a kernel does not fit 32 bits", where=where, got=argument)


def decode_launch(payload: bytes, where: str) -> StoredLaunch:
    """Read what ``encode_launch`` wrote; anything else is refused."""

    def fail(reason: str) -> PlanCorruptError:
        return PlanCorruptError(
            f"the launch of a kernel is malformed: {reason}", where=where, fix="build the plan again"
        )

    record: _LaunchRecord = decode(_DECODER, payload, fail)
    stored = [*record.grid, *record.block, record.shared_bytes, *record.arguments]
    if not record.name or len(record.name) > _MAX_NAME_CHARS or len(stored) > _MAX_ARGUMENTS:
        raise fail("its name or its arguments are out of range")
    try:
        exprs = tuple(Constant(each) if type(each) is int else decode_expr(each) for each in stored)
    except UsageError as error:
        raise fail(error.what) from None
    return StoredLaunch(name=record.name, exprs=exprs)
