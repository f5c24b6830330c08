"""Frozen values that every layer shares. No I/O, no clock, no randomness; units are in the names."""
