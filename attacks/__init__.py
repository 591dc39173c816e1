"""Hostile checkpoints: one file or folder a fault."""
