"""Launches of kernels that are text."""

from __future__ import annotations

from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.tune.questions import KernelDraft

__all__ = ["draft_text"]


def draft_text(text: KernelText, roles: tuple[str, ...], capability: int) -> KernelDraft:
    """The launch of a generated kernel, whose buffers have these roles."""
    return KernelDraft(roles=roles, request=request_text(text, capability), grid=text.grid, sizes=text.sizes)
