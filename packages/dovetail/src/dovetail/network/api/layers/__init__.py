"""The layers of a network, one module a family: each records what it was told and writes ONNX nodes when asked."""
