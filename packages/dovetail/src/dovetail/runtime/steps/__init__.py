"""What a plan runs: one class a kind of step, each bound to the values of a run."""
