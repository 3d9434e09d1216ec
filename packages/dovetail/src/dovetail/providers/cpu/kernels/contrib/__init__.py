"""Kernels of the operators that ONNX Runtime adds: com.microsoft and its neighbours."""
