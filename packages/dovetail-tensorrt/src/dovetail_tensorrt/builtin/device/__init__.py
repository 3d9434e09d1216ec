"""Built-in plugins on a CUDA device: whose memory an address is, and how kernels come onto a stream."""
