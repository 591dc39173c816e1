"""Speaks to foreign systems using only the public face; each is imported on use."""
