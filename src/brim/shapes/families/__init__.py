"""One room for each group of families: which fields a family reads and which tensors follow from them; families do not import each other."""
