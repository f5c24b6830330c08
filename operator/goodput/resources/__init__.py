"""A Model as decided becomes Kubernetes objects: pure functions from values to plain dicts, and their comparison.

Entry points: `render.render_model(RenderInput, existing)`, `compare.compare(existing, desired)`,
`kinds.memory.memory_config_map(...)`. Nothing here talks to a cluster.
"""
