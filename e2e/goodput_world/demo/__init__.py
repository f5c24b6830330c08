"""The demo: a real trace replayed against a Model on the embedded world, watched live and judged at the end."""
