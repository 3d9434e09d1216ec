"""Operators as schemas and registries describe them, and what back ends cover of them."""
