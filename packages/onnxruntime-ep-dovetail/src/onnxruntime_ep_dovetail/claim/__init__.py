"""Which nodes Dovetail takes from ONNX Runtime, and in which groups."""
