"""What a back end signs: the provider contract and the kernel registry."""
