"""Files of rows, one module a format: how many rows there are, and their values.

No file is trusted: what it claims is checked before memory is taken, nothing in it is code, and a row that cannot be
read is a row with an error.
"""
