"""How each engine turns a model and a workload into bytes; one room per engine, and they are strangers to each other."""
