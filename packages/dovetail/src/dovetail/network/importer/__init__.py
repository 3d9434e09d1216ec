"""ONNX models into networks: read, checked, prepared, with unknown operators made plugins."""
