"""A server under load for a long time: ``python -m benchmarks.serve.soak --minutes 30``."""
