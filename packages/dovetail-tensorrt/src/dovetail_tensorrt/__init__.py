"""Scripts written for TensorRT's Python API run on Dovetail: ``install`` puts a module in place of ``tensorrt``.

    import dovetail_tensorrt
    dovetail_tensorrt.install()
    import tensorrt as trt

``python -m dovetail_tensorrt script.py`` does the same for a script that is not to be changed. Importing this package
imports nothing else.
"""

from dovetail_tensorrt.modules import ModuleTakenError, install, uninstall

__all__ = ["ModuleTakenError", "__version__", "install", "uninstall"]

__version__ = "0.2.0"
