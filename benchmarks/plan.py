"""How long `plan` takes: every option on every built-in GPU type, notches of the SLO included.

Each case is planned in a process that has imported what it needs and remembers no earlier answer; the fastest and the
median of some such runs count, the first of all (which reads the catalogue) beside them. A case is over the limit if
its median is. Then whole commands, from the shell to the answer, as a person waits for them.

    python benchmarks/plan.py [--runs 7] [--out build/plan.json]
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from goodput.cli.planned import planned
from goodput.domain.intent import Objective
from goodput.perfmodel import Lengths, architecture, built_in_gpu_types
from goodput.perfmodel.gpus import whole_cards
from goodput.perfmodel.options import allowed, options
from goodput.perfmodel.requirements import Requirements

LIMIT_SECONDS = 0.3
CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
NIGHTLY = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=4 * 3600.0)
CASES: dict[str, dict[str, Any]] = {
    "8B chat": {"model": "meta-llama/Llama-3.1-8B-Instruct", "objective": CHAT, "rps": 10.0},
    "70B chat": {"model": "meta-llama/Llama-3.1-70B-Instruct", "objective": CHAT, "rps": 3.0},
    "DeepSeek-V3 chat": {"model": "deepseek-ai/DeepSeek-V3", "objective": CHAT, "rps": 5.0},
    "gpt-oss-120b chat": {"model": "openai/gpt-oss-120b", "objective": CHAT, "rps": 20.0},
    "70B nightly batch": {"model": "meta-llama/Llama-3.1-70B-Instruct", "objective": NIGHTLY, "rps": 2.0},
    "8B, demand unknown": {"model": "meta-llama/Llama-3.1-8B-Instruct", "objective": CHAT, "rps": 0.0},
}
MANIFESTS = """apiVersion: goodput.dev/v1alpha1
kind: SLO
metadata: {name: chat}
spec: {ttft: 500ms, tpot: 50ms}
---
apiVersion: goodput.dev/v1alpha1
kind: Model
metadata: {name: llama-8b}
spec: {model: meta-llama/Llama-3.1-8B-Instruct, slo: chat}
"""


def forget() -> None:
    """Empty every cache of functions, so that nothing is found that an earlier run worked out."""
    for item in gc.get_objects():
        if isinstance(item, functools._lru_cache_wrapper):
            item.cache_clear()


def measured(case: dict[str, Any], runs: int) -> dict[str, Any]:
    """Seconds of `options` on all types, slices of cards too, and of the whole plan on cards."""
    arch = architecture(case["model"])
    if arch is None:
        raise SystemExit(f"{case['model']} is not in the catalogue")
    wanted = Requirements(arch=arch, objective=case["objective"], lengths=Lengths(1155.0, 211.0), rps=case["rps"])
    every = built_in_gpu_types()
    cards = whole_cards(allowed(every, ())[0])
    times: dict[str, list[float]] = {"all_types": [], "plan": []}
    found = 0
    for _ in range(runs):
        for name, seconds in times.items():
            forget()
            types = built_in_gpu_types()
            started = time.perf_counter()
            if name == "all_types":
                found = len(options(wanted, types))
            else:
                planned("m", "chat", wanted, cards, left_out={})
            seconds.append(time.perf_counter() - started)
    return {
        "types": len(every),
        "options": found,
        **{
            f"{name}_{what}_seconds": round(of(values), 4)
            for name, values in times.items()
            for what, of in (("first", lambda v: v[0]), ("median", statistics.median), ("best", min))
        },
    }


def command_seconds(arguments: list[str], runs: int) -> float:
    """Median seconds from the start of a new process to its end."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "goodput.cli.main", *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return round(statistics.median(times), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("build/plan.json"))
    arguments = parser.parse_args()
    rows = {name: measured(case, arguments.runs) for name, case in CASES.items()}
    print(f"{'case':<22}{'options':>8}{'all types: median':>19}{'best':>8}{'plan on cards: median':>23}{'best':>8}")
    for name, row in rows.items():
        every = f"{row['all_types_median_seconds']:>17.3f} s{row['all_types_best_seconds']:>6.3f} s"
        whole_plan = f"{row['plan_median_seconds']:>21.3f} s{row['plan_best_seconds']:>6.3f} s"
        print(f"{name:<22}{row['options']:>8}{every}{whole_plan}")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(MANIFESTS)
        file.flush()
        commands = {
            "size meta-llama/Llama-3.1-8B-Instruct": ["size", "meta-llama/Llama-3.1-8B-Instruct"],
            "plan -f FILE --rate 10": ["plan", "-f", file.name, "--rate", "10"],
            "plan -f FILE --rate 10 -o json": ["plan", "-f", file.name, "--rate", "10", "-o", "json"],
        }
        whole = {name: command_seconds(words, arguments.runs) for name, words in commands.items()}
    for name, seconds in whole.items():
        print(f"kubectl goodput {name:<40}{seconds:>7.3f} s")
    slow = [name for name, row in rows.items() if row["all_types_median_seconds"] > LIMIT_SECONDS]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({"limit_seconds": LIMIT_SECONDS, "cases": rows, "commands": whole, "over_the_limit": slow}, indent=2)
    )
    if slow:
        print(f"over the limit of {LIMIT_SECONDS} s: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
