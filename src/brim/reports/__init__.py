"""Values in, characters out; no number is computed here."""
