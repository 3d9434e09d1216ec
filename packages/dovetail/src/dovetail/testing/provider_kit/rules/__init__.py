"""The rules of the provider contract, one module a part of it."""
