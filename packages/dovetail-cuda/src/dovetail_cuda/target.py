"""Devices that are not here: plans can be built for them, with the first way of everything, and nothing can be run."""

from __future__ import annotations

import re
from typing import Final

from dovetail.errors import ProviderError
from dovetail_cuda.run.cublaslt import ProductLibrary, RunProduct
from dovetail_cuda.run.driver import DeviceFacts, Driver
from dovetail_cuda.run.payload import Product

__all__ = ["AbsentDriver", "AbsentProducts", "LaterProducts", "find_target"]

_MULTIPROCESSORS: Final = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 120: 170}
"""Of the largest device of each architecture."""
_FORM: Final = re.compile(r"(?:(?P<name>.+)-)?sm_(?P<capability>[0-9]{2,3})(?:-(?P<multiprocessors>[0-9]{1,4}))?")


def find_target(text: str) -> DeviceFacts:
    """A device by its architecture, or by the fingerprint that a machine with such a device shows.

    >>> find_target("sm_90").multiprocessors, find_target("NVIDIA H200-sm_90-132").name
    (132, 'NVIDIA H200')

    Raises:
        ProviderError: It is neither.
    """
    found = _FORM.fullmatch(text.strip())
    capability = int(found["capability"]) if found else 0
    if found is None or capability not in _MULTIPROCESSORS:
        known = ", ".join(f"sm_{each}" for each in _MULTIPROCESSORS)
        raise ProviderError(
            "there is no such target",
            where="provider 'cuda'",
            expected=f"{known}, or what a device is called where it is, such as 'NVIDIA H200-sm_90-132'",
            got=ascii(text[:100]),
        )
    return DeviceFacts(
        ordinal=0,
        name=found["name"] or f"sm_{capability}",
        capability=divmod(capability, 10),
        multiprocessors=int(found["multiprocessors"] or _MULTIPROCESSORS[capability]),
        memory_bytes=None,
    )


class AbsentDriver(Driver):
    """The driver of a device that is not here."""

    def __init__(self, target: str) -> None:
        self._target = target

    def open_context(self, ordinal: int) -> int:
        """There is none."""
        raise ProviderError(
            f"the target {self._target} is not here, so that nothing can run",
            where="provider 'cuda'",
            fix="save the plan (dovetail build, Builder.build_serialized_network) and load it where the device is",
        )


class AbsentProducts(ProductLibrary):
    """A library that multiplies nothing: what it can do depends on a device that is not here."""

    def get_version(self) -> int:
        """No version."""
        return 0

    def find_algorithms(self, product: Product, count: int) -> list[bytes]:
        """No algorithms."""
        return []

    def prepare(self, product: Product, algorithm: bytes) -> RunProduct:
        """There is nothing to run on."""
        raise ProviderError("cuBLASLt has no device", where="provider 'cuda'")


class LaterProducts(AbsentProducts):
    """A library that is asked for its algorithms when the plan is tuned."""

    def find_algorithms(self, product: Product, count: int) -> list[bytes]:
        """As many as are asked for, none of which is known yet."""
        return [b""] * count
