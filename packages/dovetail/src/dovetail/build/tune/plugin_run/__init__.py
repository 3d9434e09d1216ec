"""One run of each plugin layer before a plan is saved, and the checks of that run."""
