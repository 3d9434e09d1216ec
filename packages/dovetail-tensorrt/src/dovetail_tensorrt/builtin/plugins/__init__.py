"""The built-in plugins, one module each: fields, shapes, types, and which function computes them where."""
