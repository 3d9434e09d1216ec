"""Fuzzing for as long as one likes: ``make fuzz MINUTES=60``."""
