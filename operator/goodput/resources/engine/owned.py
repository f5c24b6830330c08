"""What a user wrote for flags and environment that are Goodput's never reaches the engine.

The API server refuses it at `kubectl apply`, by the lists in `goodput.api.engine`; rendering drops it again, for one
flag taken over silently would make every figure of the fleet wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from goodput.api.engine import OWNED_ENV, OWNED_ENV_PREFIXES, OWNED_FLAGS, flag_of

_OWNED = tuple(sorted(flag for flags in OWNED_FLAGS.values() for flag in flags))
_SHORT_WITH_VALUE = re.compile(r"^(-[a-z]+)\d+$")
# argparse takes whatever follows a flag of one letter for its value.
_ONE_LETTER = tuple(flag for flag in _OWNED if len(flag) == 2)


def owned_flag(token: str) -> str | None:
    """The owned flag that `token` sets, or None.

    argparse accepts unique prefixes, vLLM also underscores and the dotted form of JSON flags, so that
    `--tensor_parallel=2` sets `--tensor-parallel-size`. A prefix that could mean an owned flag counts as that; so does
    a bare `--`, which would turn all that follows into the name of the model, and `-tp4`, which is `-tp 4`.
    """
    flag = flag_of(token)
    short = _SHORT_WITH_VALUE.match(flag)
    if short is not None:
        flag = short.group(1)
    if token.startswith(_ONE_LETTER):
        return token[:2]
    return next((owned for owned in _OWNED if flag and owned.startswith(flag)), None)


def split_user_args(args: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments to pass on, and those dropped because they belong to Goodput (with their values).

    A value before the first flag is dropped too: vLLM would read it as the model.
    """
    kept: list[str] = []
    dropped: list[str] = []
    target = dropped
    for token in args:
        if flag_of(token):
            target = dropped if owned_flag(token) is not None else kept
        # $(NAME) must stay what it is: the kubelet would make a flag of ours, or a token, of it.
        target.append(token.replace("$", "$$") if "$(" in token else token)
    return tuple(kept), tuple(dropped)


def user_env(env: Iterable[Mapping[str, Any]], owned: Iterable[str]) -> list[dict[str, Any]]:
    """EnvVars of the user without those that belong to Goodput, and without `owned`; the last of equal names wins."""
    refused = {*OWNED_ENV, *owned}
    by_name = {str(item["name"]): dict(item) for item in env}
    return [item for name, item in by_name.items() if name not in refused and not name.startswith(OWNED_ENV_PREFIXES)]
