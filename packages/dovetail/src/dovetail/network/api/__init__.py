"""The network API: tensors and layers, written as an onnx-ir graph."""
