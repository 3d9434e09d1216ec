"""Kernels of ai.onnx.ml."""
