"""From what a plan stores to results; it imports nothing that builds."""
