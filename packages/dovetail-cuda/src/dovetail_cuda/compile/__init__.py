"""From a region to a cubin: its source, processes that compile it, and a store on disk."""
