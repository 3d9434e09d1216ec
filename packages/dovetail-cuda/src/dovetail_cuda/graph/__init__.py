"""From a partition to regions: what becomes one kernel."""
