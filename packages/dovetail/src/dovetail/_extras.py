"""The packages that Dovetail uses, by the extra that brings them, and what to tell when one is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dovetail.errors import ResourceError

__all__ = ["DISTRIBUTION", "PACKAGES", "describe_missing", "install_line"]

DISTRIBUTION: Final = "dovetail-engine"
"""What the registry calls Dovetail; another project has the name that is imported."""

PACKAGES: Final = {
    "": ("ml_dtypes", "msgspec", "numpy", "xxhash"),
    "build": ("filelock", "onnx", "onnx-ir", "onnx-shape-inference", "onnxscript", "platformdirs"),
    "cli": ("rich", "shtab"),
    "images": ("pillow",),
    "onnxruntime": ("onnxruntime",),
    "text": ("google-re2",),
    "weights": ("safetensors",),
}
"""Extra -> the packages it brings; under the empty name what Dovetail cannot do without."""


def describe_missing(error: ModuleNotFoundError) -> ResourceError | None:
    """The error for a package that an extra would have brought; None for any other module."""
    from dovetail.errors import ResourceError

    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, names in PACKAGES.items() if package.replace("_", "-") in _dashed(names)), None)
    if extra is None:
        return None
    what = f"this needs the package '{package}', which is not installed"
    return ResourceError(what, fix=install_line(extra))


def install_line(extra: str = "", *, package: str = DISTRIBUTION) -> str:
    """The command that installs Dovetail, with what an extra brings, or another package.

    >>> install_line("onnxruntime")
    "pip install 'dovetail-engine[onnxruntime]'"
    """
    return f"pip install '{package}[{extra}]'" if extra else f"pip install {package}"


def _dashed(names: tuple[str, ...]) -> list[str]:
    return [name.replace("_", "-") for name in names]
