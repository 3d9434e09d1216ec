"""The embedded back end: NumPy kernels, which are also what every other back end is compared with."""
