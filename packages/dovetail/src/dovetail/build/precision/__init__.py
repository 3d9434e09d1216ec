"""From the types that a model has to those that it is to run in: a reason for each layer, then casts and Q/DQ."""
