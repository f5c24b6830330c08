"""Open-loop replay of real traffic traces: a schedule made of one, a client that keeps to it, and a record of every
request.

`schedule` is pure and seeded; `replayer` sends at the scheduled instants whatever the answers do; `summary` judges the
records.
"""

from goodput_world.replay.envelope import DEMO_ENVELOPE, FLAT_ENVELOPE, Envelope
from goodput_world.replay.records import Objectives, Outcome, Record
from goodput_world.replay.schedule import Request, busiest_minute_rps, read_schedule, schedule, write_schedule
from goodput_world.replay.summary import ReplaySummary, summarise
from goodput_world.replay.traces import TraceRequest, azure_conversation, read_azure, read_mooncake

__all__ = [
    "DEMO_ENVELOPE",
    "FLAT_ENVELOPE",
    "Envelope",
    "Objectives",
    "Outcome",
    "Record",
    "ReplaySummary",
    "Request",
    "TraceRequest",
    "azure_conversation",
    "busiest_minute_rps",
    "read_azure",
    "read_mooncake",
    "read_schedule",
    "schedule",
    "summarise",
    "write_schedule",
]
