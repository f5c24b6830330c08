"""One leader at a time, by a Lease."""

from __future__ import annotations

import pytest

from goodput.adapters import lease as lease_module
from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import LEASES
from goodput.adapters.kube_errors import Unavailable
from goodput.adapters.lease import Lease
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
    api = FakeKube()
    one, two = lease(api, "one", clock), lease(api, "two", clock)
    await one._try()
    await two._try()
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
