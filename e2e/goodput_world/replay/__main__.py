"""`python -m goodput_world.replay`: replay a schedule against a URL and write `requests.csv`, `progress.jsonl`,
`replay.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from goodput_world.replay.client import Target
from goodput_world.replay.records import Objectives
from goodput_world.replay.replayer import Replay, ReplayPlan
from goodput_world.replay.schedule import read_schedule
from goodput_world.replay.summary import LATENESS_LIMIT_SECONDS, ReplaySummary

SUMMARY_FILE = "replay.json"
EXIT_INVALID = 2
EXIT_INTERRUPTED = 130


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m goodput_world.replay", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of the service, http://HOST[:PORT]")
    parser.add_argument(
        "--schedule", required=True, type=Path, help="JSON lines as goodput_world.replay.write_schedule makes"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the results")
    parser.add_argument("--model", required=True, help="served model name, sent in every request")
    parser.add_argument("--api-key", help="sent as a bearer token")
    parser.add_argument(
        "--seconds", type=float, help="stop sending after this many seconds (default: the schedule's length)"
    )
    parser.add_argument(
        "--grace", type=float, default=120.0, help="seconds to wait for answers after the end (default 120)"
    )
    parser.add_argument("--ttft", type=float, help="objective: seconds to the first token")
    parser.add_argument("--tpot", type=float, help="objective: mean seconds per output token after the first")
    parser.add_argument("--e2e", type=float, help="objective: seconds to the last token")
    return parser.parse_args(argv)


def _raise_file_limit() -> None:
    """One connection per request: an open-loop client of an overloaded service needs as many as the system lets it
    have.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(replay: Replay) -> ReplaySummary | None:
    """The summary, or None when a signal stopped the replay (its records are written all the same)."""
    task = asyncio.create_task(replay.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 for a valid run, 2 for one whose replayer was late itself, 130 when interrupted."""
    arguments = _arguments(argv)
    requests, seconds, seed = read_schedule(arguments.schedule)
    if arguments.seconds is not None and arguments.seconds < seconds:
        seconds = arguments.seconds
        requests = [request for request in requests if request.offset_seconds < seconds]
    plan = ReplayPlan(
        requests=requests,
        seconds=seconds,
        seed=seed,
        objectives=Objectives(arguments.ttft, arguments.tpot, arguments.e2e),
        grace_seconds=arguments.grace,
    )
    _raise_file_limit()
    # What lives for the whole run need not be looked at by every collection in it.
    gc.collect()
    gc.freeze()
    replay = Replay(plan, Target(arguments.url, arguments.model, arguments.api_key), arguments.out)
    summary = asyncio.run(_run(replay))
    if summary is None:
        print("replay interrupted: the records so far are written", file=sys.stderr)
        return EXIT_INTERRUPTED
    facts = {**asdict(summary), "valid": summary.valid, "seconds": seconds, "seed": seed, "url": arguments.url}
    facts |= {"started_epoch": replay.started_epoch, "ended_epoch": time.time()}
    (arguments.out / SUMMARY_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(_words(summary))
    return 0 if summary.valid or not requests else EXIT_INVALID


def _words(summary: ReplaySummary) -> str:
    share = (
        "no request"
        if summary.attainment is None
        else f"{summary.attainment:.2%} of {summary.requests} requests met the SLO"
    )
    lost = ", ".join(f"{count} {outcome}" for outcome, count in summary.lost_by_outcome.items() if count) or "none"
    rates = f"goodput {summary.goodput_rps:.2f}/s of {summary.offered_rps:.2f}/s offered"
    text = f"{share}; {rates}; late {summary.late}; lost: {lost}"
    if summary.lateness_p99_seconds is not None:
        text += f"; replayer lateness p99 {summary.lateness_p99_seconds * 1000:.1f} ms"
        if not summary.valid:
            text += f": above {LATENESS_LIMIT_SECONDS * 1000:.0f} ms, so this run is INVALID and shows nothing"
    return text


if __name__ == "__main__":
    sys.exit(main())
