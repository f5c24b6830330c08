"""Writes the status of Models, by server-side apply to the sub-resource."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from goodput.adapters.kinds import MODELS
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import KubeError, NotFound, SchemaOutdated
from goodput.adapters.objects import Object
from goodput.adapters.records import DeploymentRecord
from goodput.api import Model
from goodput.api.conditions import Condition as WrittenCondition
from goodput.api.conditions import merge_conditions
from goodput.api.modelstatus import ModelStatus, PinnedStatus
from goodput.domain.conditions import Condition
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Problem
from goodput.domain.observed import ModelView
from goodput.domain.plan import ModelPlan
from goodput.resources import names
from goodput.runtime.entries import Entry
from goodput_controllers.cluster import Cluster
from goodput_controllers.conditions import conditions_of, first_seen, never_valid, not_managed, undecided
from goodput_controllers.status import StatusBook
from goodput_controllers.status_text import rfc3339
from goodput_controllers.telling import Teller
from goodput_controllers.world import World

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StatusWriter:
    """Status of each Model: whether it is due, what it says, and the write."""

    api: KubeApi
    world: World
    cluster: Cluster
    book: StatusBook
    teller: Teller
    leading: Callable[[], bool]
    # uid and generation of invalid Models whose status says so already, and whether it says that they run
    _told_invalid: dict[Key, tuple[str, int, bool]] = field(default_factory=dict)

    def clear(self) -> None:
        """Believe nothing of what was written: another leader may have written since."""
        self._told_invalid.clear()

    def forget(self, present: set[Key]) -> None:
        """Drop Models that are gone."""
        for key in self._told_invalid.keys() - present:
            del self._told_invalid[key]

    def due(self, view: ModelView, plan: ModelPlan, problems: Iterable[Problem], now: float) -> bool:
        """Whether it is to be written now."""
        conditions = conditions_of(plan, problems, self.book.update_available(plan.key))
        return self.book.due(view, plan, conditions, self._present(plan.key), now)

    async def write(self, view: ModelView, plan: ModelPlan, problems: Iterable[Problem], now: float) -> None:
        """Write it if it is due.

        Raises:
            KubeError: the API server did not take it; the next pass tries again.
        """
        key = plan.key
        conditions = conditions_of(plan, problems, self.book.update_available(key))
        present = self._present(key)
        await self.teller.conditions(key, view.intent.uid, conditions, present)
        if not self.book.due(view, plan, conditions, present, now):
            return
        figures, pinned = self.book.figures(plan, now), self._pinned(view.intent)
        status = self.book.build(view, plan, conditions, present, figures=figures, pinned=pinned, now=now)
        if await self._apply(key, view.intent.uid, status.to_dict()):
            self.book.written(view, plan, conditions, status, figures=figures, now=now)

    def invalid_due(self, entry: Entry[Model]) -> bool:
        """Whether the author of a Model that was never valid has yet to be told."""
        return self._told_invalid.get(entry.key) != (entry.uid, entry.generation, self._runs(entry.key, entry.uid))

    async def invalid(self, entry: Entry[Model], now: float) -> None:
        """Say what is wrong with a Model that was never valid."""
        if entry.error is None:
            return
        told = entry.uid, entry.generation, self._runs(entry.key, entry.uid)
        conditions = not_managed(entry.error) if told[2] else never_valid(str(entry.error), entry.error.reason)
        await self._tell_invalid(entry.key, told, lambda _: conditions, now)

    def decided(self, key: Key) -> None:
        """Take note that this Model could be decided: should it be invalid or undecided again, it is told again."""
        self._told_invalid.pop(key, None)

    async def undecided(self, intent: ModelIntent, error: Exception, now: float) -> None:
        """Say that the laws stumbled over this Model; what else its status says holds until they do not."""
        told = intent.uid, intent.generation, self._runs(intent.key, intent.uid)
        if self._told_invalid.get(intent.key) == told:
            return
        message = f"nothing could be decided, see the log of the operator: {type(error).__name__}: {error}"
        await self._tell_invalid(
            intent.key, told, lambda before: undecided(message[:1000], {c.type: c.status for c in before}), now
        )

    async def _tell_invalid(
        self,
        key: Key,
        told: tuple[str, int, bool],
        lay: Callable[[Iterable[WrittenCondition]], tuple[Condition, ...]],
        now: float,
    ) -> None:
        """Lay conditions over those that are there (of a Model that has none: over those of a new one)."""
        uid, generation, _ = told
        present, at = self._present(key) or await self._status_of_unreadable(key), rfc3339(now)
        before = present.conditions if present is not None else ()
        before = before or merge_conditions((), first_seen(), generation=generation, now=at)
        new = {c.type: c for c in merge_conditions(before, lay(before), generation=generation, now=at)}
        laid = tuple(new.pop(condition.type, condition) for condition in before)
        conditions = (*laid, *new.values())
        values = {"conditions": conditions, "observed_generation": generation}
        status = (present or ModelStatus()).model_copy(update=values)
        if await self._apply(key, uid, status.to_dict()):
            await self.teller.conditions(key, uid, conditions, present)
            self._told_invalid[key] = told
            self.book.overwritten(key)

    async def _apply(self, key: Key, uid: str, status: dict[str, Any]) -> bool:
        """False if the Model is gone or this process does not lead."""
        if not self.leading():
            return False
        try:
            answer = await self.api.apply(_manifest(key, uid, status), MODELS, subresource="status")
        except SchemaOutdated as error:
            log.error("the CRDs are older than this operator, upgrade them: %s", error)
            reduced: dict[str, Any] = {
                name: value for name, value in status.items() if name in ("observedGeneration", "conditions")
            }
            answer = await self.api.apply(_manifest(key, uid, reduced), MODELS, subresource="status")
        except NotFound:
            return False
        except KubeError as error:
            # A Model that was deleted and made again has another uid: the next pass writes to that one.
            if error.status in (409, 422) and "uid" in str(error).lower():
                return False
            raise
        self.world.models.put(answer)
        return True

    def _present(self, key: Key) -> ModelStatus | None:
        entry = self.world.models.get(key)
        return entry.value.status if entry is not None and entry.value is not None else None

    async def _status_of_unreadable(self, key: Key) -> ModelStatus | None:
        """What status says of a Model that could never be read: nothing of it is kept, so the API server is asked."""
        try:
            found = await self.api.get(MODELS, key.namespace, key.name)
            return ModelStatus.model_validate(found.get("status") or {})
        except (NotFound, ValidationError):
            return None

    def _engine(self, key: Key, uid: str) -> DeploymentRecord | None:
        record = self.cluster.deployment(Key(key.namespace, names.engine(key.name)))
        return record if record is not None and record.owner_uid == uid else None

    def _runs(self, key: Key, uid: str) -> bool:
        record = self._engine(key, uid)
        return record is not None and not record.deleting

    def _pinned(self, intent: ModelIntent) -> PinnedStatus | None:
        record = self._engine(intent.key, intent.uid)
        if record is None:
            return None
        return PinnedStatus(image=record.image or None, revision=record.revision or None)


def _manifest(key: Key, uid: str, status: dict[str, Any]) -> Object:
    return {
        "apiVersion": MODELS.api_version,
        "kind": MODELS.kind,
        # The uid is a precondition: never write to a namesake.
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
        "status": status,
    }
