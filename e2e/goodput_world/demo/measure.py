"""Replay the traffic against the Model's Service, watch the fleet meanwhile, and bring home what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable

import aiohttp

from goodput_world.cluster import REPOSITORY
from goodput_world.demo.counters import OperatorCount, OperatorCounters
from goodput_world.demo.environment import Environment
from goodput_world.demo.fleet import FleetReader
from goodput_world.demo.machine import cpu_wait
from goodput_world.demo.objects import DemoObjects
from goodput_world.demo.settings import DemoSettings
from goodput_world.demo.steady import writes_in_last_steady_minutes
from goodput_world.demo.summary import Run, StaticPeak
from goodput_world.demo.view import Display, Picture, Rates
from goodput_world.errors import WorldError
from goodput_world.processes import Process
from goodput_world.replay.progress import ProgressReader
from goodput_world.replay.records import Objectives, read_csv
from goodput_world.replay.replayer import RECORDS_FILE
from goodput_world.replay.summary import summarise

SCHEDULE_FILE = "schedule.jsonl"
_GRACE_SECONDS = 120.0
# Two scrapes and two ticks with nothing new: the operator has counted every request.
_COUNTERS_QUIET_SECONDS = 50.0
_COUNTERS_TIMEOUT_SECONDS = 180.0


class Measurement:
    """One replay and everything counted beside it, from the start of the replay to the end of its last request."""

    def __init__(
        self, settings: DemoSettings, objects: DemoObjects, static_peak: StaticPeak, place: Environment
    ) -> None:
        self._settings = settings
        self._objects = objects
        self._static_peak = static_peak
        self._place = place
        name = objects.model.metadata.name
        self._fleet = FleetReader(place.cluster.api, settings.namespace, name)
        self._rates = Rates()
        self._replicas: list[int] = []
        self._cpu_wait_share: float | None = None
        self._counters = (
            OperatorCounters(place.prometheus_url, settings.namespace, name) if place.prometheus_url else None
        )

    async def run(self, seconds_to_first_ready: float, display: Display, say: Callable[[str], None]) -> Run:
        """Raises WorldError when the replayer fails or a part of the world ends before it."""
        folder = self._settings.directory
        url = self._settings.url or await self._place.cluster.service_url(
            self._settings.namespace, self._objects.model.metadata.name
        )
        before = await self._count()
        await asyncio.to_thread(self._fleet.read)
        watching = asyncio.create_task(self._fleet.run())
        try:
            with display:
                await self._replay(url, display)
            say("the last request has ended; waiting until the operator has counted them all")
            after = await self._settled_count()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        facts = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
        return self._result(facts["started_epoch"], _end_epoch(facts), seconds_to_first_ready, before, after)

    def _result(
        self,
        start_epoch: float,
        end_epoch: float,
        seconds_to_first_ready: float,
        before: OperatorCount | None,
        after: OperatorCount | None,
    ) -> Run:
        records = read_csv(self._settings.directory / RECORDS_FILE)
        resizes = [resize.at_epoch for resize in self._fleet.ledger.resizes]
        audit = self._place.audit
        return Run(
            replay=summarise(records, self._objects.objectives, self._settings.seconds),
            replay_seconds=self._settings.seconds,
            ledger=self._fleet.ledger,
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            static_peak=self._static_peak,
            attainment_objective=self._objects.attainment,
            # No count before the first request is a count of none; no count after the last one is no count.
            attainment_operator=None if after is None else after.since(before or OperatorCount(0.0, 0.0, 0.0)).bounds(),
            price_per_gpu_hour=self._objects.price_per_gpu_hour,
            seconds_to_first_ready=seconds_to_first_ready,
            steady_writes=(
                None if audit is None else writes_in_last_steady_minutes(audit, resizes, start_epoch, end_epoch)
            ),
            speed=self._place.speed,
            cpu_wait_share=self._cpu_wait_share,
        )

    async def _replay(self, url: str, display: Display) -> None:
        """Run the replayer in a process of its own, so that nothing here makes it late."""
        folder = self._settings.directory
        process = Process("replayer", self._command(url), log_path=folder / "replay.log", env=_environment())
        progress = ProgressReader(folder)
        waited_before = cpu_wait()
        process.start()
        try:
            while process.running:
                self._place.check_alive()
                for each in progress.new():
                    self._rates.add(each)
                    display.show(self._picture())
                await asyncio.sleep(0.5)
        finally:
            await process.stop(grace_seconds=10.0)
        waited = cpu_wait()
        if waited is not None and waited_before is not None:
            self._cpu_wait_share = waited.share_since(waited_before)
        if process.returncode not in (0, 2):  # 2: late, which the summary says
            raise WorldError(f"the replayer ended with status {process.returncode}:\n{process.tail()}")

    def _command(self, url: str) -> list[str]:
        folder = str(self._settings.directory)
        command = [sys.executable, "-m", "goodput_world.replay", "--url", url, "--out", folder]
        command += ["--schedule", str(self._settings.directory / SCHEDULE_FILE)]
        command += ["--model", self._objects.model.served_name, "--grace", f"{_GRACE_SECONDS:g}"]
        return command + _objective_options(self._objects.objectives)

    def _picture(self) -> Picture:
        ledger, latest = self._fleet.ledger, self._rates.latest
        assert latest is not None
        state = ledger.latest
        if state is not None:
            self._replicas.append(state.ready)
        gpu_hours = ledger.gpu_seconds(latest.started_epoch, latest.started_epoch + latest.t_seconds) / 3600
        price = self._objects.price_per_gpu_hour
        return Picture(
            seconds=self._settings.seconds,
            rates=self._rates,
            fleet=state,
            replicas=self._replicas,
            model=self._fleet.view,
            gpu_hours=gpu_hours,
            cost=None if price is None else gpu_hours * price,
            static_peak_replicas=self._static_peak.replicas,
        )

    async def _count(self) -> OperatorCount | None:
        return None if self._counters is None else await self._counters.read()

    async def _settled_count(self) -> OperatorCount | None:
        if self._counters is None:
            return None
        try:
            return await self._counters.settled(_COUNTERS_QUIET_SECONDS, _COUNTERS_TIMEOUT_SECONDS)
        except (aiohttp.ClientError, TimeoutError):
            return None


def _objective_options(objectives: Objectives) -> list[str]:
    wanted = {
        "--ttft": objectives.ttft_seconds,
        "--tpot": objectives.tpot_seconds,
        "--e2e": objectives.e2e_seconds,
    }
    return [word for name, value in wanted.items() if value is not None for word in (name, f"{value:g}")]


def _environment() -> dict[str, str]:
    paths = [str(REPOSITORY / "e2e"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _end_epoch(facts: dict[str, object]) -> float:
    """When the last request ended: for one that never did, when the replayer gave it up."""
    started, ended, last = (facts[name] for name in ("started_epoch", "ended_epoch", "last_end_seconds"))
    lost = facts["lost_by_outcome"]
    assert isinstance(started, float)
    assert isinstance(ended, float)
    assert isinstance(lost, dict)
    if lost["unfinished"] or not isinstance(last, int | float):
        return ended
    return started + last
