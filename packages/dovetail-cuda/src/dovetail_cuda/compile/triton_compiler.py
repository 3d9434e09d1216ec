"""Compiling one kernel with Triton, for a device that need not be here."""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from functools import cache
from types import ModuleType
from typing import Any, Final

from dovetail_cuda.compile.request import CompiledCode, KernelRequest

__all__ = ["compile_kernel", "load_kernel"]

_WAIT: Final = "griddepcontrol.wait"
"""The instruction without which a kernel would read what is not written yet."""


def compile_kernel(request: KernelRequest) -> CompiledCode:
    """Compile a kernel to a cubin."""
    os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")  # a third of the size
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = load_kernel(request)
    names = list(request.signature)
    source = ASTSource(
        fn=function,
        signature=dict(request.signature),
        constexprs={(names.index(name),): value for name, value in request.constants.items()},
        attrs={(number,): [["tt.divisibility", 16]] for number, name in enumerate(names) if _is_pointer(request, name)},
    )
    options: dict[str, Any] = {"num_warps": request.num_warps, "num_stages": request.num_stages}
    options |= {"enable_fp_fusion": True, "launch_pdl": request.starts_early}
    made = triton.compile(source, target=GPUTarget("cuda", request.capability, 32), options=options)
    if request.starts_early and _WAIT not in made.asm["ptx"]:
        raise ValueError("a kernel that starts early does not wait for the one in front of it")
    about = made.metadata
    return CompiledCode(
        code=bytes(made.asm["cubin"]),
        name=about.name,
        num_warps=about.num_warps,
        shared_bytes=about.shared,
        scratch_bytes=about.global_scratch_size or 0,
        starts_early=request.starts_early,
    )


def _is_pointer(request: KernelRequest, name: str) -> bool:
    """Buffers start at multiples of 256 bytes, so that every pointer is aligned."""
    return request.signature[name].startswith("*")


def load_kernel(request: KernelRequest) -> Any:
    """The function of Triton's language that a request names or holds."""
    module = _import_text(request.text) if request.text else importlib.import_module(request.module)
    return vars(module)[request.function]


class _TextLoader(importlib.abc.ExecutionLoader):
    """A module of generated text: Triton asks ``inspect`` for the source of a function, which asks this loader."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, fullname: str) -> str:
        """The text."""
        return self._text

    def get_filename(self, fullname: str) -> str:
        """A name for messages; there is no such file."""
        return f"generated/{fullname}.py"


@cache
def _import_text(text: str) -> ModuleType:
    name = f"dovetail_cuda_generated_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    loader = _TextLoader(text)
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, loader))
    module.__file__ = loader.get_filename(name)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
