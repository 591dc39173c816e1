"""The record of one run on disk."""
