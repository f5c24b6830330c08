"""Flags and environment that belong to Goodput: what a user writes for them never reaches the engine.

The API refuses most of this at `kubectl apply`; rendering drops it again, since one flag taken over silently would make
every figure of the fleet wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Long names of flags whose value comes from the Model, the placement or the drain recipe.
OWNED_FLAGS = frozenset(
    {
        "--model",
        "--served-model-name",
        "--revision",
        "--host",
        "--port",
        "--uds",
        "--root-path",
        "--headless",
        "--config",
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--data-parallel-size-local",
        "--data-parallel-rank",
        "--nnodes",
        "--node-rank",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-model-len",
        "--max-num-queued-reqs",
        "--max-num-queued-tokens",
        "--custom-histogram-buckets",
        "--shutdown-timeout",
        "--disable-log-stats",
        "--ssl-keyfile",
        "--ssl-certfile",
        "--api-server-count",
    }
)
# Short spellings, and aliases that are no prefix of the long name.
OWNED_ALIASES = frozenset({"-tp", "-pp", "-dp", "-dpl", "-dpr", "-n", "-r", "-asc"})

# Set by Goodput whatever the user writes: without these the pod fails under a read-only root, or metrics change shape.
OWNED_ENV = frozenset({"HOME", "USER", "HF_TOKEN", "PROMETHEUS_DISABLE_CREATED_SERIES"})
# Never passed on: they open unauthenticated control endpoints or move what Goodput relies on.
REFUSED_ENV = frozenset(
    {"VLLM_SERVER_DEV_MODE", "VLLM_PORT", "VLLM_HOST_IP", "PROMETHEUS_MULTIPROC_DIR", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"}
)

_NUMBER = re.compile(r"^-\d")


def is_flag(token: str) -> bool:
    """Whether argparse would read `token` as an option rather than as a value."""
    return token.startswith("-") and len(token) > 1 and not _NUMBER.match(token)


def owned_flag(token: str) -> str | None:
    """The owned flag that `token` sets, or None.

    argparse accepts unique prefixes, vLLM also underscores and the dotted form of JSON flags, so that `--max_num_s=4`
    sets `--max-num-seqs`. A prefix that could mean an owned flag counts as that.
    """
    name = token.split("=", 1)[0].split(".", 1)[0]
    if name in OWNED_ALIASES:
        return name
    if not name.startswith("--"):
        # A value glued to a short flag: -tp4 is read as -tp 4.
        glued = re.match(r"^(-[a-z]+)\d+$", name)
        return glued.group(1) if glued and glued.group(1) in OWNED_ALIASES else None
    name = name.replace("_", "-")
    if name in OWNED_FLAGS:
        return name
    if len(name) <= len("--"):
        return name
    return min((flag for flag in OWNED_FLAGS if flag.startswith(name)), default=None)


def split_user_args(args: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments to pass on, and those dropped because they belong to Goodput (with their values).

    A value before the first flag is dropped too: vLLM would read it as the model. So is a bare `--`.
    """
    kept: list[str] = []
    dropped: list[str] = []
    target = dropped
    for token in args:
        if is_flag(token):
            target = dropped if owned_flag(token) is not None else kept
        target.append(token)
    return tuple(kept), tuple(dropped)


def user_env(env: Iterable[Mapping[str, Any]], owned: Iterable[str] = OWNED_ENV) -> list[dict[str, Any]]:
    """EnvVars of the user without those that belong to Goodput; the last of equal names wins."""
    refused = REFUSED_ENV.union(owned)
    by_name = {str(item["name"]): dict(item) for item in env if str(item["name"]) not in refused}
    return list(by_name.values())
