"""OpenVINO's CPU plug-in as a back end of Dovetail: whole partitions, each compiled into one model."""

__all__ = ["__version__"]

__version__ = "0.2.0"
