"""ONNX models into networks, and their weights into engines."""
