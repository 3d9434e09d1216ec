"""Operators that go over a sequence and carry a state from position to position."""
