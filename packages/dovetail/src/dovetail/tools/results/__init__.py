"""What came out of runs: stored in files and folders, read back, and looked through for what is not finite."""
