"""Events are aggregated: repeating one costs few writes."""

from __future__ import annotations

from goodput.adapters.events import WINDOW_SECONDS, EventRecorder, Subject
from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import EVENTS
from goodput.adapters.kube_errors import Unavailable

MODEL = Subject("goodput.dev/v1alpha1", "Model", "team", "llama", "u1")


async def test_equal_events_become_one_series() -> None:
    """A hundred equal events are one Event object and at most seven writes."""
    api, now = FakeKube(), 1000.0
    recorder = EventRecorder(api, "me", clock=lambda: now)
    for _ in range(100):
        await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    (event,) = api.objects[EVENTS.plural].values()
    assert event["regarding"]["uid"] == "u1"
    assert event["type"] == "Normal"
    assert event["series"]["count"] >= 50
    assert len(api.writes) <= 7


async def test_other_notes_and_later_windows_are_new_events() -> None:
    """Another note is another Event; so is the same one after the window."""
    now = 1000.0
    api = FakeKube()
    recorder = EventRecorder(api, "me", clock=lambda: now)
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="3 -> 4", warning=True)
    now += WINDOW_SECONDS + 1
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    assert len(api.objects[EVENTS.plural]) == 3


async def test_a_restarted_operator_does_not_repeat_itself() -> None:
    """The name is made from the content, so that a second process within the window adds no second Event."""
    api = FakeKube()
    for identity in ("one", "two"):
        recorder = EventRecorder(api, identity, clock=lambda: 1000.0)
        await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    assert len(api.objects[EVENTS.plural]) == 1


async def test_failure_to_write_is_no_failure() -> None:
    """An event that cannot be written raises nothing."""
    api = FakeKube()
    api.fault = failing("create", times=1, error=Unavailable("503", 503))
    await EventRecorder(api, "me").record(MODEL, reason="Demand", action="ScaleUp", note="x" * 5000)
    assert api.writes == []


async def test_who_no_longer_leads_writes_none() -> None:
    """A process that was frozen and wakes up has an event to write: its Lease is another's by then."""
    api, leads = FakeKube(), True
    recorder = EventRecorder(api, "me", clock=lambda: 1000.0, leading=lambda: leads)
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    leads = False
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="2 -> 3")
    await recorder.record(MODEL, reason="Demand", action="ScaleUp", note="3 -> 4")
    assert len(api.writes) == 1
