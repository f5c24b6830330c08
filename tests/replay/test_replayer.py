"""The open-loop replayer against a server that streams, fails, sheds, cuts, aborts and hangs."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from goodput_world.replay import Objectives, Outcome, Request, write_schedule
from goodput_world.replay.__main__ import EXIT_INTERRUPTED
from goodput_world.replay.client import Target
from goodput_world.replay.progress import ProgressReader
from goodput_world.replay.records import read_csv
from goodput_world.replay.replayer import PARTIAL_RECORDS_FILE, RECORDS_FILE, Replay, ReplayPlan

from .conftest import ABORT_TOKENS, CUT_TOKENS, ERROR_TOKENS, FAIL_TOKENS, HANG_TOKENS, SHED_TOKENS

SLO = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)


def plan(requests: list[Request], seconds: float = 1.0, grace_seconds: float = 0.5) -> ReplayPlan:
    return ReplayPlan(requests, seconds, seed=1, objectives=SLO, grace_seconds=grace_seconds)


async def test_fifty_requests_end_as_the_server_ended_them(
    server: tuple[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    """Each way to end becomes its own outcome, and every offered request is in the records."""
    url, bodies = server
    special = (FAIL_TOKENS, SHED_TOKENS, CUT_TOKENS, ABORT_TOKENS, ERROR_TOKENS, HANG_TOKENS)
    requests = [
        Request(index * 0.015, 10 + index, special[index // 8] if index % 8 == 7 else 5, f"{index}")
        for index in range(50)
    ]
    replay = Replay(plan(requests), Target(url, "m"), tmp_path)

    summary = await replay.run()

    assert summary.requests == 50
    assert summary.lost_by_outcome == {"refused": 1, "unreachable": 0, "failed": 2, "cut": 2, "unfinished": 1}
    assert summary.met + summary.late == 44
    assert summary.attainment == summary.met / 50
    stored = read_csv(tmp_path / RECORDS_FILE)
    assert [record.id for record in stored] == [request.id for request in requests]
    fine = [record for record in stored if record.outcome is Outcome.OK]
    assert {(record.tokens_received, record.status) for record in fine} == {(5, 200)}
    assert all(record.ttft_seconds is not None and record.tpot_seconds is not None for record in fine)
    assert not (tmp_path / PARTIAL_RECORDS_FILE).exists()
    assert sorted(len(body["prompt"]) for body in bodies) == [10 + index for index in range(50)]  # type: ignore[arg-type]
    assert all(body["ignore_eos"] is True and body["stream"] is True for body in bodies)


async def test_the_clock_is_open_loop(server: tuple[str, list[dict[str, object]]], tmp_path: Path) -> None:
    """Requests that hang delay none of the later ones."""
    url, bodies = server
    requests = [Request(index * 0.01, 4, HANG_TOKENS, f"{index}") for index in range(40)]

    await Replay(plan(requests, seconds=0.5, grace_seconds=0.0), Target(url, "m"), tmp_path).run()

    stored = read_csv(tmp_path / RECORDS_FILE)
    assert len(bodies) == 40
    assert all(record.outcome is Outcome.UNFINISHED and record.end_seconds is None for record in stored)
    assert all(record.sent_seconds is not None and record.sent_seconds < 0.6 for record in stored)


async def test_a_refused_connection_is_unreachable(tmp_path: Path) -> None:
    """Nobody listening is a lost request of its own kind, at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    summary = await Replay(
        plan([Request(0.0, 1, 1, "0")], 0.1), Target(f"http://127.0.0.1:{port}", "m"), tmp_path
    ).run()

    assert summary.lost_by_outcome["unreachable"] == 1
    assert "Connect" in read_csv(tmp_path / RECORDS_FILE)[0].error


async def test_progress_is_readable_while_it_runs(server: tuple[str, list[dict[str, object]]], tmp_path: Path) -> None:
    """The progress file grows by whole lines and ends with the final counts."""
    url, _ = server
    requests = [Request(0.05 + index * 0.1, 4, 4, f"{index}") for index in range(12)]
    task = asyncio.create_task(Replay(plan(requests, seconds=1.3), Target(url, "m"), tmp_path).run())
    reader = ProgressReader(tmp_path)
    await asyncio.sleep(0.6)

    early = list(reader.new())
    await task
    late = list(reader.new())

    assert early
    assert early[-1].sent < 12
    assert (late[-1].offered, late[-1].done, late[-1].in_flight, late[-1].tokens) == (12, 12, 0, 48)
    assert abs(late[-1].started_epoch - time.time()) < 10


async def test_a_cancelled_replay_still_writes_every_request(
    server: tuple[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    """What was never sent is in the records as unfinished: it was offered."""
    url, _ = server
    requests = [Request(index * 0.2, 4, 4, f"{index}") for index in range(20)]
    task = asyncio.create_task(Replay(plan(requests, seconds=4.0), Target(url, "m"), tmp_path).run())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    stored = read_csv(tmp_path / RECORDS_FILE)

    assert len(stored) == 20
    assert stored[0].outcome is Outcome.OK
    assert stored[-1].sent_seconds is None
    assert stored[-1].outcome is Outcome.UNFINISHED


async def test_the_command_writes_its_summary(server: tuple[str, list[dict[str, object]]], tmp_path: Path) -> None:
    """`python -m goodput_world.replay` cuts the schedule to --seconds and says whether the run is valid."""
    url, _ = server
    path = tmp_path / "schedule.jsonl"
    write_schedule(path, [Request(0.1, 4, 4, "0"), Request(0.2, 4, 4, "1"), Request(5.0, 4, 4, "2")], 6.0, 7)
    options = ["--url", url, "--schedule", str(path), "--out", str(tmp_path / "out"), "--model", "m"]

    code = await asyncio.to_thread(_run_main, [*options, "--seconds", "0.5", "--ttft", "0.5", "--tpot", "0.05"])

    facts = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert code == (0 if facts["valid"] else 2)
    assert code != EXIT_INTERRUPTED
    assert facts["requests"] == 2
    assert facts["lost"] == 0
    assert facts["offered_rps"] == 4.0


def _run_main(options: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "goodput_world.replay", *options], check=False).returncode
