"""The small objects beside the Deployments, a file per concern."""
