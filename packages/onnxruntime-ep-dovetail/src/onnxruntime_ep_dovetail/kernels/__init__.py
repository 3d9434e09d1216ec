"""The kernel route: one kernel a node, from the registry of a back end, and the layout it prefers."""
