"""The open-loop replayer: sends every request at its scheduled instant, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from goodput_world.replay.client import Target, send
from goodput_world.replay.progress import Progress, ProgressWriter
from goodput_world.replay.prompts import prompt_token_ids
from goodput_world.replay.records import Objectives, Outcome, Record, append_csv, write_csv
from goodput_world.replay.schedule import Request
from goodput_world.replay.summary import ReplaySummary, percentile, summarise

RECORDS_FILE = "requests.csv"
# What has ended so far, in order of ending: there while the replay runs, and left behind by one that was killed.
PARTIAL_RECORDS_FILE = "requests.partial.csv"
_PROGRESS_PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What to replay: requests in order, the length of the run, the prompts' seed, and how long after it to wait for
    answers.
    """

    requests: Sequence[Request]
    seconds: float
    seed: int
    objectives: Objectives
    grace_seconds: float = 120.0


class Replay:
    """One run. `records` fill while it goes; `started_epoch` is the Unix time of its zero."""

    def __init__(self, plan: ReplayPlan, target: Target, folder: Path) -> None:
        self.plan = plan
        self.target = target
        self.folder = folder
        self.records: list[Record] = []
        self.started_epoch = 0.0
        self._zero = 0.0
        self._ended: list[Record] = []
        self._open: set[asyncio.Task[None]] = set()
        self._done = 0
        self._met = 0
        self._lost = 0
        self._tokens = 0

    async def run(self) -> ReplaySummary:
        """Send everything, wait for the answers up to the grace period, write the records; cancelling it does the last
        too.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PARTIAL_RECORDS_FILE).unlink(missing_ok=True)
        self._zero = time.monotonic()
        self.started_epoch = time.time()
        reporter = asyncio.create_task(self._report())
        try:
            await self._send_all()
            left_seconds = self._zero + self.plan.seconds + self.plan.grace_seconds - time.monotonic()
            if self._open:
                await asyncio.wait(set(self._open), timeout=max(0.0, left_seconds))
        finally:
            await self._stop(reporter)
        return summarise(self.records, self.plan.objectives, self.plan.seconds)

    async def _send_all(self) -> None:
        for request in self.plan.requests:
            record = Record(request.id, request.offset_seconds, request.input_tokens, request.output_tokens)
            # The prompt is made before the instant, not after it.
            body = self.target.request_bytes(
                prompt_token_ids(request, self.plan.seed),
                request.output_tokens,
                f"replay-{self.plan.seed}-{request.id}",
            )
            wait_seconds = self._zero + request.offset_seconds - time.monotonic()
            # What is due goes out together: yielding between them would add a turn of the loop to each one's lateness.
            if wait_seconds > 0.0:
                await asyncio.sleep(wait_seconds)
            self.records.append(record)
            task = asyncio.create_task(self._one(body, record))
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        await asyncio.sleep(max(0.0, self._zero + self.plan.seconds - time.monotonic()))

    async def _one(self, body: bytes, record: Record) -> None:
        await send(self.target, body, record, self._zero)
        self._ended.append(record)
        self._done += 1
        self._tokens += record.tokens_received
        self._met += record.met(self.plan.objectives)
        self._lost += record.outcome is not Outcome.OK

    async def _report(self) -> None:
        """Once a second: a line of progress, and the records that ended since the last one."""
        writer = ProgressWriter(self.folder)
        next_at = self._zero
        try:
            while True:
                self._flush(writer)
                next_at += _PROGRESS_PERIOD_SECONDS
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))
        finally:
            self._flush(writer)
            writer.close()

    def _flush(self, writer: ProgressWriter) -> None:
        writer.write(self._progress())
        append_csv(self.folder / PARTIAL_RECORDS_FILE, self._ended, self.plan.objectives)
        self._ended.clear()

    def _progress(self) -> Progress:
        lateness = [value for record in self.records if (value := record.lateness_seconds) is not None]
        now_seconds = time.monotonic() - self._zero
        return Progress(
            t_seconds=round(now_seconds, 3),
            started_epoch=self.started_epoch,
            offered=len(self.records),
            sent=len(lateness),
            done=self._done,
            met=self._met,
            lost=self._lost,
            in_flight=len(self._open),
            tokens=self._tokens,
            lateness_p99_seconds=percentile(lateness, 0.99),
        )

    async def _stop(self, reporter: asyncio.Task[None]) -> None:
        for task in (*self._open, reporter):
            task.cancel()
        await asyncio.gather(*self._open, reporter, return_exceptions=True)
        unsent = self.plan.requests[len(self.records) :]
        self.records += [Record(each.id, each.offset_seconds, each.input_tokens, each.output_tokens) for each in unsent]
        write_csv(self.folder / RECORDS_FILE, self.records, self.plan.objectives)
        (self.folder / PARTIAL_RECORDS_FILE).unlink(missing_ok=True)
