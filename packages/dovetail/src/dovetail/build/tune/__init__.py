"""Choosing by measurement, for plugins, kernels, partitions, reformats and whole assignments alike.

Whoever has several ways to do something proposes them as ``candidates``; the ``tuner`` looks each up in the ``cache``,
times the missing ones where they run, compares their results and keeps what it found. ``plugins``, ``providers``,
``reformats`` and ``rivals`` are those who propose.
"""
