"""What somebody wants of the types of a network: which narrow types, and which layers, inputs and outputs stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dovetail.errors import UsageError
from dovetail.near_names import suggest

__all__ = [
    "DEFAULT_BLOCK",
    "DEFAULT_TOLERANCE",
    "FLOAT_TYPES",
    "METHODS",
    "QUANTIZED_TYPES",
    "WEIGHT_TYPES",
    "PrecisionOptions",
]

FLOAT_TYPES: Final = ("fp16", "bf16")
QUANTIZED_TYPES: Final = ("int8", "fp8")
WEIGHT_TYPES: Final = ("int4", "int8")
METHODS: Final = ("error", "entropy", "minmax")
DEFAULT_BLOCK: Final = 32
DEFAULT_TOLERANCE: Final = 0.05
_IO_TYPES: Final = ("fp32", *FLOAT_TYPES)
_LEAST_BLOCK: Final = 16
_MOST_BLOCK: Final = 256


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """The types that a network is to run in.

    >>> PrecisionOptions.parse("int8+fp16").wanted
    ('int8', 'fp16')
    """

    float_type: str | None = None
    """``fp16`` or ``bf16``: layers compute in it unless something speaks against it."""
    quantized: str | None = None
    """``int8`` or ``fp8``: matrix products and convolutions are quantized with ranges from calibration."""
    weights: str | None = None
    """``int4`` or ``int8``: only the weights of matrix products are quantized, in blocks; nothing is calibrated."""
    block: int = DEFAULT_BLOCK
    """How many weights of a column share a scale, for ``weights``."""
    keep: Sequence[str] = ()
    """Patterns of layer names (``*`` and ``?``) that stay in fp32."""
    keep_ops: Sequence[str] = ()
    """Operators that stay in fp32."""
    io_types: Mapping[str, str] = field(default_factory=dict)
    """Input or output -> ``fp32``, ``fp16`` or ``bf16``; all others keep their types."""
    calibration: Iterable[Mapping[str, Any]] | None = None
    """Batches of arrays by input name, to find ranges with."""
    method: str = "error"
    """How int8 ranges follow from what was seen: ``error`` (the smallest squared error), ``entropy`` or ``minmax``."""
    tolerance: float = DEFAULT_TOLERANCE
    """How far outputs may be off by ``quantized``, as a share of their root mean square on calibration data: layers
    that cost most stay in fp32 until they are not further off. Infinity keeps none."""
    cache: str | os.PathLike[str] | None = None
    """The file that keeps calibrated ranges between builds."""
    compare: bool = True
    """Whether the result is compared with the fp32 network."""

    def __post_init__(self) -> None:
        _check_one(self.float_type, FLOAT_TYPES, "float_type")
        _check_one(self.quantized, QUANTIZED_TYPES, "quantized")
        _check_one(self.weights, WEIGHT_TYPES, "weights")
        _check_one(self.method, METHODS, "method")
        for name, text in self.io_types.items():
            _check_one(text, _IO_TYPES, f"io_types['{name}']")
        if not _LEAST_BLOCK <= self.block <= _MOST_BLOCK or self.block & (self.block - 1):
            expected = f"a power of two from {_LEAST_BLOCK} to {_MOST_BLOCK}"
            raise UsageError("not a size of a block", where="precision, block", expected=expected, got=self.block)
        if not self.tolerance > 0:
            expected = "a number above 0, such as 0.05; inf for any error"
            raise UsageError("not a tolerance", where="precision, tolerance", expected=expected, got=self.tolerance)
        self._check_use()

    def _check_use(self) -> None:
        """Refuse what could have no effect."""
        idle = [
            (self.block != DEFAULT_BLOCK and not self.weights, "block", "weights"),
            (self.cache is not None and not self.quantized, "cache", "quantized (int8 or fp8)"),
            (self.tolerance != DEFAULT_TOLERANCE and not self.quantized, "tolerance", "quantized (int8 or fp8)"),
            (self.method != "error" and self.quantized != "int8", "method", "quantized='int8'"),
            (bool(self.keep) and not self.wanted, "keep", "a narrow type"),
            (bool(self.keep_ops) and not self.wanted, "keep_ops", "a narrow type"),
        ]
        for is_idle, name, needs in idle:
            if is_idle:
                raise UsageError(f"'{name}' can have no effect without {needs}", where="precision", fix="leave it out")
        if self.weights and self.quantized:
            raise UsageError(
                "weights alone, or weights and activations, are quantized, not both",
                where="precision",
                got=f"weights={self.weights}, quantized={self.quantized}",
                fix="choose one of them",
            )

    @property
    def wanted(self) -> tuple[str, ...]:
        """The narrow types that were asked for."""
        weights = None if self.weights is None else f"{self.weights} weights"
        return tuple(name for name in (self.quantized, weights, self.float_type) if name is not None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked for."""
        return not self.wanted and not self.io_types

    @staticmethod
    def parse(text: str, options: PrecisionOptions | None = None) -> PrecisionOptions:
        """Types joined by ``+``, such as ``fp16`` or ``int8+fp16``, added to other options.

        Raises:
            UsageError: A word is no type, or two exclude each other.
        """
        found = options or PrecisionOptions()
        for word in text.split("+"):
            field_name = "float_type" if word in FLOAT_TYPES else "quantized"
            if word not in (*FLOAT_TYPES, *QUANTIZED_TYPES):
                known = (*FLOAT_TYPES, *QUANTIZED_TYPES)
                raise UsageError(
                    f"'{word}' is no precision", where="precision", expected=", ".join(known), fix=suggest(word, known)
                )
            if getattr(found, field_name) not in (None, word):
                raise UsageError(f"'{getattr(found, field_name)}' and '{word}' exclude each other", where="precision")
            changed: dict[str, Any] = {field_name: word}
            found = replace(found, **changed)
        return found


def _check_one(value: str | None, known: Sequence[str], name: str) -> None:
    if value is not None and value not in known:
        raise UsageError(
            "there is no such type" if name != "method" else "there is no such method",
            where=f"precision, {name}",
            expected=", ".join(known),
            got=repr(value)[:80],
            fix=suggest(str(value), known),
        )
