"""The demo from `kubectl apply` to the verdict."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from typing import Any

from rich.console import Console

from goodput_world.demo.environment import Environment, environment
from goodput_world.demo.fleet import FleetReader
from goodput_world.demo.measure import SCHEDULE_FILE, Measurement
from goodput_world.demo.objects import read_objects
from goodput_world.demo.plot import plot
from goodput_world.demo.rate import static_peak
from goodput_world.demo.settings import ENGINE_START_SECONDS, EXAMPLES, PLANT_FILE, DemoSettings
from goodput_world.demo.summary import checks, is_valid, summarise_run
from goodput_world.demo.view import Display
from goodput_world.replay.records import read_csv
from goodput_world.replay.replayer import RECORDS_FILE
from goodput_world.replay.schedule import schedule, write_schedule
from goodput_world.replay.traces import azure_conversation

SUMMARY_FILE = "summary.json"
EXIT_FAILED = 1
EXIT_INVALID = 2
_READY_TIMEOUT_SECONDS = 600.0


class Demo:
    """One run of the demo; its files go to `settings.directory`, which is emptied first."""

    def __init__(self, settings: DemoSettings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._objects = read_objects(EXAMPLES, settings.namespace, with_gpu_type=not settings.existing)
        self._requests = schedule(azure_conversation(), settings.seconds, settings.envelope, settings.seed)
        self._static_peak = static_peak(PLANT_FILE, self._requests, self._objects)

    async def run(self) -> int:
        """Exit code: 0 every check passed, 1 one failed, 2 the replayer was late and the run shows nothing."""
        folder = self._settings.directory
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_schedule(folder / SCHEDULE_FILE, self._requests, self._settings.seconds, self._settings.seed)
        self._say_what_is_simulated()
        async with environment(self._settings, self._note) as place:
            seconds_to_first_ready = await self._apply_and_wait(place)
            measurement = Measurement(self._settings, self._objects, self._static_peak, place)
            summary = summarise_run(await measurement.run(seconds_to_first_ready, Display(self._console), self._note))
        (folder / SUMMARY_FILE).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        pictures = [folder / "demo.svg", folder / "demo.png"]
        plot(summary, read_csv(folder / RECORDS_FILE), self._objects.objectives, pictures)
        return self._verdict(summary)

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _say_what_is_simulated(self) -> None:
        settings, peak = self._settings, self._static_peak
        world = (
            "the real API server, scheduler, controller-manager, Prometheus, vllm-router and Goodput. Simulated: the "
            f"GPU nodes, and vLLM, which takes {ENGINE_START_SECONDS:g} s to start and its speed from {PLANT_FILE.name}"
        )
        if settings.existing:
            world = "the cluster that KUBECONFIG names, as it is. Simulated: only the users"
        traffic = (
            f"Azure LLM inference trace 2023 (conversation), {len(self._requests)} requests in {settings.seconds:g} s "
            "with its own arrivals and lengths, sent open-loop at speed 1; every prompt is unique random tokens"
        )
        envelope = (
            f"demand is thinned or doubled by {settings.envelope.describe()}, linear between; "
            "the copy of a doubled request comes up to 1 s later"
        )
        static = (
            f"one replica holds the SLO up to {peak.replica_rps:.2f} requests/s, measured on the simulated engine; the "
            f"busiest minute has {peak.busiest_minute_rps:.2f}: a fixed fleet needs {peak.replicas} replicas"
        )
        objects = f"{self._objects.names}; the Model allows only {self._objects.gpu_type}"
        self._say("goodput demo")
        facts = {"world": world, "objects": objects, "traffic": traffic, "envelope": envelope, "static": static}
        for name, text in facts.items():
            self._say(f"  {name:<9}{text}")

    async def _apply_and_wait(self, place: Environment) -> float:
        """Seconds from `kubectl apply` to Ready."""
        namespace, name = self._settings.namespace, self._objects.model.metadata.name
        started = time.monotonic()
        for document in self._objects.documents:
            await place.cluster.apply(document, namespace=namespace)
        self._note(f"applied {self._objects.names}; waiting until Model {name} is Ready")

        reader = FleetReader(place.cluster.api, namespace, name)

        async def ready() -> bool:
            place.check_alive()
            return await asyncio.to_thread(reader.is_ready)

        await place.cluster.wait_for(ready, what=f"Model {name} Ready", timeout_seconds=_READY_TIMEOUT_SECONDS)
        seconds = time.monotonic() - started
        self._note(f"Ready {seconds:.1f} s after kubectl apply; the replay starts")
        return seconds

    def _verdict(self, summary: dict[str, Any]) -> int:
        """Print the result; the exit code says the same."""
        self._say("")
        for name in ("attainment", "attainment_operator", "goodput_rps", "offered_rps", "requests", "requests_lost"):
            self._say(f"  {name:<32} {_shown(summary[name])}")
        for name in ("replicas_max", "replica_hours", "gpu_hours", "static_peak_gpu_hours", "cost", "scale_events"):
            self._say(f"  {name:<32} {_shown(summary[name])}")
        for name in ("seconds_to_first_ready", "api_writes_last_steady_minutes"):
            self._say(f"  {name:<32} {_shown(summary[name])}")
        for name in ("replayer_lateness_p99_seconds", "cpu_wait_share"):
            self._say(f"  {name:<32} {_shown(summary[name])}")
        self._say("")
        results = checks(summary)
        for check in results:
            mark = "pass" if check.passed else ("excused" if check.excused else "FAIL")
            self._say(f"  {mark:<8} {check.name}: {check.text}")
        self._say(f"\nresults in {self._settings.directory}: {SUMMARY_FILE}, {RECORDS_FILE}, demo.svg, demo.png")
        if not is_valid(summary):
            self._say(
                "INVALID: the replayer was later than 50 ms at p99, so the run shows nothing; use an idler machine"
            )
            return EXIT_INVALID
        return EXIT_FAILED if any(check.counts_as_failed for check in results) else 0


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " to ".join(_shown(each) for each in value)
    return "not known" if value is None else str(value)
