"""Ranges and scales of tensors for INT8."""
