"""Runs that devices take part in: streams, the order of work, captured graphs, and callers' arrays on devices."""
