"""kubectl against one cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from goodput_world.errors import CommandFailed

_TIMEOUT_SECONDS = 180.0


async def run_command(
    argv: list[str], *, environment: dict[str, str], stdin: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS
) -> str:
    """Standard output of a command. Raises CommandFailed with what it printed; a timeout or cancellation ends it."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    shown = " ".join([Path(argv[0]).name, *argv[1:]])
    try:
        async with asyncio.timeout(timeout_seconds):
            stdout, stderr = await process.communicate(stdin.encode() if stdin is not None else None)
    except TimeoutError:
        raise CommandFailed(f"`{shown}` did not end in {timeout_seconds:.0f} s", status=-1, stderr="") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    errors = stderr.decode(errors="replace")
    if process.returncode != 0:
        raise CommandFailed(f"`{shown}` failed:\n{errors.strip()}", status=process.returncode or -1, stderr=errors)
    return stdout.decode(errors="replace")


class Kubectl:
    """Callable: `await kubectl("get", "pods", "-A")` returns what kubectl prints."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        """`kubeconfig` names the cluster and the user."""
        self.program = program
        self.kubeconfig = kubeconfig

    async def __call__(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> str:
        """Standard output. Raises CommandFailed with kubectl's words when it returns non-zero or takes too long."""
        return await run_command(
            [str(self.program), *arguments],
            environment={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdin=stdin,
            timeout_seconds=timeout_seconds,
        )
