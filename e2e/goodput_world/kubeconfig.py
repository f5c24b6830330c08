"""Users of the world's API server, and kubeconfig files that name them."""

from __future__ import annotations

import csv
import io
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class User:
    """One user with a static token."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


ADMIN = "admin"
AGENT = "goodput-world:agent"
"""The simulated kubelets, kube-proxy and DNS."""
DEVELOPER = "developer"
"""A user without any right of its own: bind roles to it to see what a namespace's author can do."""
SCHEDULER = "system:kube-scheduler"
CONTROLLER_MANAGER = "system:kube-controller-manager"


def make_users() -> dict[str, User]:
    """The users of a new world, by name, with fresh tokens."""
    users = (
        User(ADMIN, ("system:masters",)),
        User(AGENT, ("system:masters",)),
        User(DEVELOPER),
        User(SCHEDULER),
        User(CONTROLLER_MANAGER),
    )
    return {user.name: user for user in users}


def token_file(users: dict[str, User]) -> str:
    """The text of the file that `--token-auth-file` reads: token, user, uid and the groups in one quoted field."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for user in users.values():
        rows.writerow([user.token, user.name, user.name, *([",".join(user.groups)] if user.groups else [])])
    return text.getvalue()


def kubeconfig_text(server: str, certificate_authority: Path, user: User) -> str:
    """A kubeconfig for one user; the certificate authority is named by its absolute path."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "goodput-world",
                    "cluster": {"server": server, "certificate-authority": str(certificate_authority.resolve())},
                }
            ],
            "users": [{"name": user.name, "user": {"token": user.token}}],
            "contexts": [{"name": "goodput-world", "context": {"cluster": "goodput-world", "user": user.name}}],
            "current-context": "goodput-world",
        },
        sort_keys=False,
    )
