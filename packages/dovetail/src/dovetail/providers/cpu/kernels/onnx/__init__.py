"""Kernels of ONNX's own operators, and of our own domain."""
