"""Other weights for a plan: read from files by name, and put in."""
