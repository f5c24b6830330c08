"""Many replicas under a load and a policy: pods, routers, telemetry and clients, event by event."""
