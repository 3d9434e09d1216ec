"""From network to plan: configuration, profiles, format enumeration, tuning, lowering and the builder."""
