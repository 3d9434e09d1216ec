"""Sizes and times as people read them."""

from __future__ import annotations

__all__ = ["format_bytes", "format_time"]


def format_bytes(count: int) -> str:
    """A size for people.

    >>> format_bytes(512), format_bytes(1536), format_bytes(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def format_time(time_us: float | None) -> str:
    """A duration for people, in microseconds; a dash where there is none.

    >>> format_time(12.34), format_time(None)
    ('12.3 us', '-')
    """
    if time_us is None:
        return "-"
    return f"{time_us:.1f} us" if time_us < 1e4 else f"{time_us / 1e3:.1f} ms"
