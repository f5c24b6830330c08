"""One leader at a time, by a Lease."""

from __future__ import annotations

import asyncio

import pytest

from goodput.adapters import lease as lease_module
from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import LEASES, Resource
from goodput.adapters.kube_errors import Unavailable
from goodput.adapters.lease import Lease
from goodput.adapters.objects import Object
from goodput.domain.identity import Key


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lease(api: FakeKube, identity: str, clock: Clock) -> Lease:
    return Lease(api, "system", "goodput", identity, monotonic=clock)


async def leader_and_standby(clock: Clock) -> tuple[FakeKube, Lease, Lease]:
    """Two that have asked, the first of which leads."""
    api = FakeKube()
    one, two = lease(api, "one", clock), lease(api, "two", clock)
    await one._try()
    await two._try()
    return api, one, two


async def test_creates_and_renews(clock: Clock) -> None:
    """The first process creates the Lease and keeps it by renewing."""
    api = FakeKube()
    one = lease(api, "one", clock)
    await one._try()
    assert one.leading
    clock.now += 9
    await one._try()
    clock.now += 9
    assert one.leading
    assert [verb for verb, _, _ in api.writes] == ["create", "update"]


async def test_a_second_process_waits_until_it_expires_unseen(clock: Clock) -> None:
    """A standby takes over only after it saw no change for the whole duration, and counts the transition."""
    api = FakeKube()
    one, two = lease(api, "one", clock), lease(api, "two", clock)
    await one._try()
    for _ in range(6):
        clock.now += 2
        await two._try()
    assert not two.leading

    clock.now += 6
    await two._try()

    assert two.leading
    assert not one.leading
    spec = api.objects["leases"][Key("system", "goodput")]["spec"]
    assert spec["holderIdentity"] == "two"
    assert spec["leaseTransitions"] == 1


async def test_a_leader_that_cannot_renew_stops_before_another_starts(clock: Clock) -> None:
    """Without renewal leadership ends after 10 s, while the Lease blocks others for 15 s."""
    api, one, two = await leader_and_standby(clock)
    api.fault = failing("get", "update", "create", times=10_000, error=Unavailable("gone"))
    clock.now += lease_module.RENEW_DEADLINE_SECONDS
    assert not one.leading
    api.fault = None
    await two._try()
    assert not two.leading


async def test_release_hands_over_at_once(clock: Clock) -> None:
    """A released Lease is free for the next process without waiting."""
    api = FakeKube()
    one, two = lease(api, "one", clock), lease(api, "two", clock)
    await one._try()
    await one.release()
    assert not one.leading
    await two._try()
    assert two.leading


async def test_a_stolen_lease_is_noticed_by_the_conflict(clock: Clock) -> None:
    """A renewal from an old version fails, and the process stops leading when it reads who holds it."""
    api = FakeKube()
    one = lease(api, "one", clock)
    await one._try()
    stolen = await api.get(LEASES, "system", "goodput")
    stolen["spec"]["holderIdentity"] = "two"
    api.put(LEASES, stolen)
    await one._try()
    clock.now += 2
    assert one._object is None
    clock.now += 8
    await one._try()
    assert not one.leading


class SlowKube(FakeKube):
    """Takes a write of the Lease, and keeps its answer for as long as `answers` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def create(self, resource: Resource, manifest: Object) -> Object:
        answer = await super().create(resource, manifest)
        await self.answers.wait()
        return answer

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        answer = await super().replace(resource, manifest)
        await self.answers.wait()
        return answer


@pytest.mark.parametrize("renewals", [0, 1])
async def test_a_release_after_a_write_that_was_cut_off_hands_over(renewals: int, clock: Clock) -> None:
    """The write got through and its answer did not, the first one or a renewal: it is given up all the same."""
    api = SlowKube()
    one = lease(api, "one", clock)
    for _ in range(renewals):
        api.answers.set()
        await one._try()
    api.answers.clear()
    running = asyncio.create_task(one.run())
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    api.answers.set()
    await one.release()
    assert holder(api) == ""
    assert not one.leading


async def test_a_release_after_a_conflict_hands_over(clock: Clock) -> None:
    """A renewal that met a conflict with our own earlier write is read again before it is given up."""
    api = FakeKube()
    one = lease(api, "one", clock)
    await one._try()
    api.put(LEASES, await api.get(LEASES, "system", "goodput"))
    await one._try()
    assert one._object is None
    await one.release()
    assert holder(api) == ""


async def test_a_release_leaves_the_lease_of_another(clock: Clock) -> None:
    """Stolen meanwhile: whoever holds it keeps it."""
    api = FakeKube()
    one = lease(api, "one", clock)
    await one._try()
    stolen = await api.get(LEASES, "system", "goodput")
    stolen["spec"]["holderIdentity"] = "two"
    api.put(LEASES, stolen)
    await one.release()
    assert holder(api) == "two"


async def test_a_release_without_an_answer_ends(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process must end within its grace period, whatever the API server does."""
    monkeypatch.setattr(lease_module, "RELEASE_SECONDS", 0.02)
    api = SlowKube()
    api.answers.set()
    one = lease(api, "one", clock)
    await one._try()
    api.answers.clear()
    async with asyncio.timeout(2):
        await one.release()
    assert not one.leading


async def test_who_stands_by_asks_for_nothing_at_the_end(clock: Clock) -> None:
    """No request for a Lease that another one holds."""
    api, _, two = await leader_and_standby(clock)
    api.fault = failing("get", "update", times=1, error=Unavailable("asked"))
    await two.release()
    assert holder(api) == "one"
    with pytest.raises(Unavailable):
        api.fault("get", LEASES, "goodput")


def holder(api: FakeKube) -> str:
    """Who has the Lease."""
    found: str = api.objects["leases"][Key("system", "goodput")]["spec"]["holderIdentity"]
    return found


async def test_each_leadership_has_a_number(clock: Clock) -> None:
    """Renewals keep it; one that was lost and came back is another one."""
    _, one, two = await leader_and_standby(clock)
    assert (one.term, two.term) == (1, 0)
    clock.now += 5.0
    await one._try()
    assert one.term == 1
    await one.release()
    await two._try()
    await one._try()
    assert (one.term, two.term) == (1, 1)
    await two.release()
    await one._try()
    assert (one.leading, one.term) == (True, 2)
