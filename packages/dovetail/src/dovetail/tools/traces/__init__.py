"""Timelines of runs, for viewers."""
