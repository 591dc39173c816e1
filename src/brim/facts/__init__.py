"""Frozen facts about models, devices, workloads, processes and limits; no I/O, no clock, no decisions."""
