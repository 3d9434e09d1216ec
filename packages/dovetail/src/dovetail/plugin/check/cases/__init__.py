"""What a plugin is tried with: inputs that it accepts, varied sizes and types, and the fields that it is made of."""
