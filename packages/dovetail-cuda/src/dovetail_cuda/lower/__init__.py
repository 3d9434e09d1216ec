"""From operators to expressions and products: a module a family."""
