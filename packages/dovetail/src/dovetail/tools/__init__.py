"""Tools over whole models: compare with a reference, reduce to the smallest that still fails, measure, trace.

Each takes what ``dovetail.compile`` takes and gives plain frozen data back; the command line shows it.
"""
