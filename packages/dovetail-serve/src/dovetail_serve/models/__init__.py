"""Loaded models: each queues requests, puts them together where that pays, and runs them.

A request is checked (``checking``), waits (``queue``) and runs (``runner``), alone or with others (``choices``), on a
thread of the model or, where the model is faster than a change of threads, on that of the event loop (``executors``).
What pays is measured when a model is loaded (``measuring``).
"""
