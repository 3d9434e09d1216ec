"""Tensors of the protocol and arrays: their datatypes, their raw bytes, and their values in JSON.

Every size is checked before anything is allocated, because shapes and bytes come from clients.
"""
