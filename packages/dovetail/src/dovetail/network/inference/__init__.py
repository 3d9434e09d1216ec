"""Types and symbolic shapes of a network."""
