"""Families of operators that nothing else is made of: each module registers its own."""
