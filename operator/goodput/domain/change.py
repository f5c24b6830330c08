"""A change of checkpoint, precision or speculation on its way to users: what is asked for, what runs, how far it is."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256

from goodput.domain.architecture import Architecture
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value

# Checkpoint, precision and speculation: (field or flag, value), sorted, without what is unset.
Quality = tuple[tuple[str, str], ...]
_DIGITS = 10


class Stage(StrEnum):
    """How far a change is. Those who follow it find its end in PASSED (users get it) or REFUSED (they do not)."""

    NONE = "None"  # nothing is asked for but what runs
    WAITING = "Waiting"  # there is no room for a canary
    STARTING = "Starting"  # the canary is not ready yet
    CHECKING = "Checking"  # the author's Job judges it
    PASSED = "Passed"
    REFUSED = "Refused"  # until the author asks for something else


class Verdict(StrEnum):
    """Why a change passed or was refused."""

    NONE = ""
    CHECKED = "Checked"  # the Job succeeded
    UNCHECKED = "Unchecked"  # there is no spec.qualityCheck: nobody checked
    SERVED_BEFORE = "ServedBefore"  # back to what served before the last change
    CHECK_FAILED = "CheckFailed"
    CHECK_OVERDUE = "CheckOverdue"  # its Job has neither succeeded nor failed long after its deadline
    CANARY_OVERDUE = "CanaryOverdue"  # the canary did not get ready


class Serving(Value, frozen=True, kw_only=True):
    """What the pods of a pool serve; it stands on their Deployment, for what its author wrote may be edited."""

    model: str
    served_name: str
    quality: Quality
    architecture: Architecture | None = None
    kv_cache: str | None = None  # precision of the KV cache; None: as the checkpoint has it
    speculation: Speculation | None = None
    asked: str = ""  # of the Model that they were rendered from

    @property
    def weights(self) -> str | None:
        """Precision that weights are quantised to while they load; None: as the checkpoint has them."""
        return dict(self.quality).get("spec.precision.weights")


class ChangeMark(Value, frozen=True, kw_only=True):
    """What the loop remembers of a change. `since` (Unix seconds) is when its stage began; 0: never."""

    id: str = ""  # of what is asked for, and of how it is checked
    stage: Stage = Stage.NONE
    since: float = 0.0
    verdict: Verdict = Verdict.NONE
    note: str = ""  # what the canary or the Job said when it was refused
    # Fingerprints of qualities: of what ran when the change was asked for, and of what ran before the last change that
    # passed. Nobody needs to check what served before.
    base: str = ""
    before: str = ""


NO_CHANGE = ChangeMark()


class CheckView(Value, frozen=True, kw_only=True):
    """The Job of a change as the API server has it."""

    change: str  # id of the change that it judges
    name: str
    ended: bool = False
    succeeded: bool = False
    message: str = ""  # why it failed


def fingerprint(*parts: object) -> str:
    """Ten hexadecimal digits of SHA-256 over the texts of `parts`: texts, numbers, and tuples of those."""
    return sha256(repr(parts).encode()).hexdigest()[:_DIGITS]


def differences(runs: Quality, asked: Quality) -> str:
    """What differs, in words: `spec.model: a -> b; spec.precision.weights: unset -> fp8`."""
    have, want = dict(runs), dict(asked)
    return "; ".join(
        f"{field}: {have.get(field, 'unset')} -> {want.get(field, 'unset')}"
        for field in sorted(have.keys() | want.keys())
        if have.get(field) != want.get(field)
    )
