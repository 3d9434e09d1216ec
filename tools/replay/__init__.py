"""Build replay: fixed builds written as canonical text, so that two versions of the builder can be compared.

`make replay` builds every case with the current tree and writes its text below ``build/replay``; `make replay BASE=REV`
also builds the cases with revision ``REV`` and prints the difference. No kernel is compiled and no timing is measured:
times derive from names, so that the choices of the tuner are fixed.
"""
