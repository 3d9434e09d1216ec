"""ONNX Runtime's graphs and tensors as onnx-ir and NumPy have them, without copies."""
