"""From chosen layers to the records of a program."""
