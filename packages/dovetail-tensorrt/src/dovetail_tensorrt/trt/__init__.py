"""What ``import tensorrt as trt`` gives."""
