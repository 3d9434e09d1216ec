"""Existing TensorRT code on Dovetail: the module, V2 plugins, migration and lint."""
