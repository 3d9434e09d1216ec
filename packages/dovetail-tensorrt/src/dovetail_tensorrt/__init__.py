"""Runs code written for the module tensorrt on Dovetail."""
