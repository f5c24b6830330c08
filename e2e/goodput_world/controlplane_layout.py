"""Where a control plane keeps its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below one absolute folder."""

    directory: Path

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.directory / "logs"

    @property
    def etcd_data(self) -> Path:
        """The store."""
        return self.directory / "etcd"

    @property
    def certificates(self) -> Path:
        """Where the API server writes the certificate that it signs itself."""
        return self.directory / "certificates"

    @property
    def certificate_authority(self) -> Path:
        """What clients trust: the API server appends its own authority to its certificate."""
        return self.certificates / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs ServiceAccount tokens."""
        return self.directory / "service-account.key"

    @property
    def service_account_public_key(self) -> Path:
        """Checks ServiceAccount tokens."""
        return self.directory / "service-account.pub"

    @property
    def tokens(self) -> Path:
        """The users' static tokens."""
        return self.directory / "tokens.csv"

    @property
    def audit_policy(self) -> Path:
        """What is written to the audit log."""
        return self.directory / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        """One JSON object per line."""
        return self.logs / "audit.log"

    @property
    def scheduler_config(self) -> Path:
        """The scheduler's configuration file."""
        return self.directory / "scheduler.yaml"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig file of a user."""
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"
