"""From regions to what a plan stores: launches, buffers, and where these lie."""
