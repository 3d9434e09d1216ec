"""Compiled models: partitions saved as plans in a model of ``EPContext`` nodes, and loaded without a build."""
