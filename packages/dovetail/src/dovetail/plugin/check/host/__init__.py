"""The hostile host that a plugin is checked in: memory, descriptors, calls and runs."""
