"""The engine pool: vLLM's arguments, its pod, its Deployment."""
