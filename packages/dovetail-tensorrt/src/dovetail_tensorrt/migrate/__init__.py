"""Moving V2 plugins to V3: a source file in, a source file out, and what could not be decided.

``module.migrate_source`` does it; ``command`` is ``dovetail migrate``, which is declared without libcst.
"""
