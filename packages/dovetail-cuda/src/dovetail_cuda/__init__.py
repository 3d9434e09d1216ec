"""CUDA as a back end of Dovetail: a partition becomes regions, a region a kernel, all of them one list of launches."""

__all__ = ["__version__"]

__version__ = "0.2.0"
