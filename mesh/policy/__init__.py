"""Decisions, and nothing else: facts and `now` go in, decisions come out. No I/O, no clock, no randomness."""
