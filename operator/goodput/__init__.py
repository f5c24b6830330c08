"""Goodput: vLLM fleets that scale on goodput."""
