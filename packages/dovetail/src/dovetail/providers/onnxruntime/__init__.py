"""ONNX Runtime's CPU kernels as a back end: whole subgraphs, each run as one session."""
