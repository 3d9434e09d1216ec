"""ONNX Runtime's CPU kernels as a back end: whole partitions, each run as one session."""
