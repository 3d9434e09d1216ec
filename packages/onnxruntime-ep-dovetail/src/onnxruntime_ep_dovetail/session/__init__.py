"""What lives as long as a session: the execution provider, its options, partitions and trace."""
