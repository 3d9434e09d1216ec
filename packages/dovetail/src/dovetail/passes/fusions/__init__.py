"""Fusions: several nodes become one that a provider has a kernel for."""
