"""Reads the text of the device catalogue that ships with the package; it does not interpret it."""

import os


def text() -> str:
    """The whole data file."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "devices.tsv")
    with open(path, encoding="utf-8") as file:
        return file.read()
