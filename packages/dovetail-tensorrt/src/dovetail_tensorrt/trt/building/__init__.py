"""From a network to a plan: builders, networks, configurations, profiles and timing caches."""
