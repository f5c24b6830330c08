"""Faults for the end-to-end tests: operators that crash at a write, a Prometheus that lies, an API server that goes."""
