"""What to compute: the network API and ONNX import, both writing an onnx-ir graph."""
