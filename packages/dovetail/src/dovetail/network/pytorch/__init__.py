"""Modules of PyTorch into networks, for users who have PyTorch installed."""
