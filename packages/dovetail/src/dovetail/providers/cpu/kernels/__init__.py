"""The NumPy reference kernels, one module a family; importing a family registers its kernels.

A family is imported when one of its operators is first looked up (``tools/make_kernel_index`` writes which has which).
Modules whose name starts with an underscore are shared helpers and register nothing.
"""

from __future__ import annotations

__all__ = ["load_kernels"]


def load_kernels() -> tuple[str, ...]:
    """Import every family now, and return their names."""
    from dovetail.providers.cpu.registry import families

    families.import_all()
    return families.names()
