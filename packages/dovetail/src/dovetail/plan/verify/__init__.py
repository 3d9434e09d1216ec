"""Checking a manifest before anything is made from it."""
