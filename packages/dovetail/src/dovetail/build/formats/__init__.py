"""Layouts of tensors chosen for the whole network, the cost of reformats included."""
