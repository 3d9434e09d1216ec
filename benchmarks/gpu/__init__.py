"""Ten exported models on a GPU against the best peers that were measured: ``python -m benchmarks.gpu``."""
