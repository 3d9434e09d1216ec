"""Which provider gets which nodes, and the partitions they compile."""
