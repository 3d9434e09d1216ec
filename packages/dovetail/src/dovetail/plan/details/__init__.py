"""The programs of a plan in every detail, for people."""
