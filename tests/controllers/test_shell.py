"""The kopf shell: what it stores, what wakes the loop, and how it outlives an outage."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from goodput.domain.identity import Key
from goodput.runtime import entries as entries_module
from goodput_controllers import kopf_shell
from goodput_controllers.world import World


def manifest(version: int, generation: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "m",
            "namespace": "a",
            "uid": "u",
            "resourceVersion": str(version),
            "generation": generation,
            **metadata,
        },
        "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat"},
    }


def test_kopf_leaves_user_objects_alone() -> None:
    """Storages that store nothing, no peering, no scanning, no events of kopf's own."""
    settings = kopf_shell.settings()
    assert settings.persistence.diffbase_storage.build(body={}) == {}
    assert settings.persistence.progress_storage.clear(essence={"a": 1}) == {"a": 1}
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled


def test_kopf_retries_for_ever() -> None:
    """The back-off has no end, and no pause is longer than its bound."""
    pauses = list(islice(iter(kopf_shell.EndlessBackoff()), 1000))
    assert len(pauses) == 1000
    assert max(pauses) <= kopf_shell.LAST_BACKOFF_SECONDS
    # It can be used again: kopf iterates it anew for every request.
    assert len(list(islice(iter(kopf_shell.settings().networking.error_backoffs), 50))) == 50  # type: ignore[arg-type]


async def test_only_changes_of_the_spec_wake_the_loop() -> None:
    """A new object, a new generation and a deletion wake it; our own status write does not, nor an old event."""
    world = World()

    def woken(kind: str, item: dict[str, Any]) -> bool:
        world.dirty.clear()
        kopf_shell.take(world, world.models, kind, item)
        return world.dirty.is_set()

    assert woken("ADDED", manifest(1))
    assert not woken("MODIFIED", manifest(2))
    assert woken("MODIFIED", manifest(4, generation=2))
    assert not woken("MODIFIED", manifest(3))
    entry = world.models.get(Key("a", "m"))
    assert entry is not None
    assert entry.generation == 2
    assert woken("DELETED", manifest(5, generation=2))
    assert world.models.get(Key("a", "m")) is None


async def test_a_model_that_is_being_deleted_is_gone() -> None:
    """Foreground deletion waits for children: the Model must not bring them back."""
    world = World()
    kopf_shell.take(world, world.models, "ADDED", manifest(1))
    world.dirty.clear()
    deleting = manifest(2, deletionTimestamp="2026-01-01T00:00:00Z")
    kopf_shell.take(world, world.models, "MODIFIED", deleting)
    assert world.models.get(Key("a", "m")) is None
    assert world.dirty.is_set()
    assert not world.models.replace_all([deleting], "2")
    assert len(world.models) == 0


async def test_relist_heals_what_kopf_missed() -> None:
    """A list finds a Model that no event told of, and drops one whose deletion was missed."""
    world = World()
    kopf_shell.take(world, world.models, "ADDED", manifest(1))
    other = manifest(2)
    other["metadata"]["name"] = "other"
    assert world.models.replace_all([other], "2")
    assert [entry.key.name for entry in world.models.entries()] == ["other"]
    assert not world.models.replace_all([other], "2")


async def test_a_list_from_before_a_model_does_not_remove_it() -> None:
    """The event of a new Model may come while an older list is still being read."""
    world = World()
    kopf_shell.take(world, world.models, "ADDED", manifest(7))
    assert not world.models.replace_all([], "6")
    assert len(world.models) == 1
    assert world.models.replace_all([], "8")
    assert len(world.models) == 0


async def test_a_deletion_ends_only_the_object_that_it_is_of() -> None:
    """Deleted and made again in one burst: kopf orders events of one uid only, so the old deletion may come last."""
    world = World()
    key = Key("a", "m")
    kopf_shell.take(world, world.models, "ADDED", manifest(1, uid="u1"))
    kopf_shell.take(world, world.models, "ADDED", manifest(6, uid="u2"))
    world.dirty.clear()
    kopf_shell.take(world, world.models, "DELETED", manifest(5, uid="u1"))
    entry = world.models.get(key)
    assert entry is not None
    assert entry.uid == "u2"
    assert not world.dirty.is_set()
    kopf_shell.take(world, world.models, "DELETED", manifest(7, uid="u2"))
    assert world.models.get(key) is None


@pytest.mark.parametrize("uid", ["u1", "u2"])
@pytest.mark.parametrize("foreground", [False, True])
async def test_what_is_older_than_a_deletion_brings_nothing_back(uid: str, foreground: bool) -> None:
    """An event of an earlier object of that name, or a list from before the deletion; a later object is taken."""
    world = World()
    kopf_shell.take(world, world.models, "ADDED", manifest(4, uid="u2"))
    if foreground:
        deleting = manifest(5, uid="u2", deletionTimestamp="2026-01-01T00:00:00Z")
        kopf_shell.take(world, world.models, "MODIFIED", deleting)
    else:
        kopf_shell.take(world, world.models, "DELETED", manifest(5, uid="u2"))
    kopf_shell.take(world, world.models, "MODIFIED", manifest(3, uid=uid))
    assert not world.models.replace_all([manifest(4, uid=uid)], "4")
    assert len(world.models) == 0
    kopf_shell.take(world, world.models, "ADDED", manifest(6, uid="u3"))
    assert len(world.models) == 1


async def test_deletions_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the latest of them: names that come and go must not fill the memory."""
    monkeypatch.setattr(entries_module, "DELETIONS_REMEMBERED", 3)
    kept = World().models
    for version in range(1, 10):
        kept.remove(Key("a", f"m{version}"), "u", version)
    assert list(kept._deletions) == [Key("a", f"m{version}") for version in (7, 8, 9)]


async def test_what_a_list_left_out_may_come_back() -> None:
    """A list that lacks an object is no word of its deletion: the next one may have it again."""
    world = World()
    kopf_shell.take(world, world.models, "ADDED", manifest(1))
    assert world.models.replace_all([], "8")
    assert world.models.replace_all([manifest(1)], "9")
    assert len(world.models) == 1
