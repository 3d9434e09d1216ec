"""The plan file: container, manifest, verification and inspection."""
