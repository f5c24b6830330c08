"""A vLLM-shaped server: the real flags, routes and metric families over the simulated engine model."""
