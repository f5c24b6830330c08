"""What Pod Security "restricted" asks of every pod, and what we add to it: a read-only root."""

from __future__ import annotations

from goodput.resources.inputs import KubeObject

USER_ID = 1000


def pod_security_context() -> KubeObject:
    """`fsGroup` makes volumes writable for the one user that runs in the pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        # Without this a large claim is chowned file by file at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> KubeObject:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
