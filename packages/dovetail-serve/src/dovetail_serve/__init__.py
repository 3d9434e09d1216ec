"""Dovetail engines behind the Open Inference Protocol: ``dovetail serve`` and ``dovetail batch``.

The folders are the way of a request: ``http`` and ``grpc`` read it (``tensors`` turns its bytes into arrays),
``protocol`` says what it is, ``models`` queues, batches and runs it, ``repository`` says which models there are.
``server`` puts them together; ``metrics`` and ``page`` tell operators and people how they are.
Importing this package imports nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.2.0"
