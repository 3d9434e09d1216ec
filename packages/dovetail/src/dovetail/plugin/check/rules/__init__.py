"""The rules of the plugin contract: one module a part of a plugin's lifecycle."""
