"""The back ends that ship with Dovetail, one folder each."""
