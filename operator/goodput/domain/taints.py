"""Taints of nodes, and which of them pods tolerate: by the rules of the scheduler."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from goodput.domain.values import Value

# Effects that keep new pods away.
KEEP_AWAY = frozenset({"NoSchedule", "NoExecute"})
# Taints that say what becomes of a node: who tolerates them gets pods that do not run, or not for long.
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
)

_UNTOLERATED = re.compile(r"untolerated taint(?:\(s\))?(?: \{([^:}]*))?")


class Taint(Value, frozen=True):
    """A taint that keeps pods away."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def passing(self) -> bool:
        """Whether it is of the node's state, and not of who may use it."""
        return self.key.startswith(_PASSING)


Taints = tuple[Taint, ...]


class _Toleration(Value, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


def toleration_of(resource: str) -> str:
    """What pods that ask for this extended resource tolerate anyway, as JSON: nodes are tainted with its name to keep
    others away, and the ExtendedResourceToleration plugin of some API servers adds the same.
    """
    return f'{{"effect":"NoSchedule","key":"{resource}","operator":"Exists"}}'


@lru_cache(maxsize=4096)
def untolerated(taints: Taints, tolerations: tuple[str, ...]) -> Taints:
    """Those of `taints` that pods with these tolerations (each a JSON object, as Kubernetes writes it) do not bear."""
    able = [_read(text) for text in tolerations]
    return tuple(taint for taint in taints if not any(each.covers(taint) for each in able))


def advice(words: str) -> str:
    """What helps a pod of which the scheduler says that it does not tolerate a taint; '' where it says no such thing.

    Newer schedulers do not name the taint. Nodes may be tainted to keep such pods away: that is for their owner to say.
    """
    taints = _UNTOLERATED.findall(words)
    if all(taint.startswith(_PASSING) for taint in taints):
        return ""
    return "to use nodes with such a taint, add it to spec.template.tolerations"


@lru_cache(maxsize=1024)
def _read(text: str) -> _Toleration:
    return msgspec.json.decode(text, type=_Toleration)
