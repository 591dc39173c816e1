"""Reads headers of checkpoints within bounds; readers are strangers to each other except through source.py."""
