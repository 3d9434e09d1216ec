"""The picture of an engine: what plans tell, and what was measured, as one page that needs nothing else."""
