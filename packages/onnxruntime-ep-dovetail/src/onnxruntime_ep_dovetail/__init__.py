"""Dovetail as an execution provider of ONNX Runtime.

    import onnxruntime, onnxruntime_ep_dovetail
    onnxruntime.register_execution_provider_library("dovetail", onnxruntime_ep_dovetail.get_library_path())

Everything but these names is internal.
"""

from __future__ import annotations

from onnxruntime_ep_dovetail._version import __version__

__all__ = ["__version__", "add_domains", "get_ep_name", "get_ep_names", "get_library_path"]

_EP_NAME = "DovetailExecutionProvider"


def get_library_path() -> str:
    """The path of the library to register."""
    from onnxruntime_ep_dovetail.install import install
    from onnxruntime_ep_dovetail.library import find_library

    path = find_library()
    install(path)
    return str(path)


def add_domains(*names: str) -> None:
    """Have plugins run the operators of these domains too, in sessions made from now on.

    The environment variable ``DOVETAIL_EP_DOMAINS``, names with commas between them, does the same.

    >>> add_domains("com.example")
    """
    from onnxruntime_ep_dovetail.domains import add_domains as add

    add(*names)


def get_ep_name() -> str:
    """The name of the execution provider."""
    return _EP_NAME


def get_ep_names() -> list[str]:
    """All names of execution providers in the library: one."""
    return [_EP_NAME]
