"""The key pair that signs ServiceAccount tokens."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from goodput_world.errors import WorldError


def write_key_pair(private: Path, public: Path) -> None:
    """Write an RSA key pair as PEM, with openssl. Raises WorldError when there is no openssl or it fails."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise WorldError("`openssl` is not on PATH: install it (package `openssl`); it signs ServiceAccount tokens")
    for command in (
        [openssl, "genrsa", "-out", str(private), "2048"],
        [openssl, "rsa", "-in", str(private), "-pubout", "-out", str(public)],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise WorldError(f"`{' '.join(command)}` failed: {ran.stderr.strip()}")
    private.chmod(0o600)
