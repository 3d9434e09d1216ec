"""The classes of the provider contract; ``dovetail.provider.interfaces`` offers all of them."""
