"""Rows made by several processes, in an order in which each finds its traces made already."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.autoscale.runs import Spec, execute
from benchmarks.autoscale.store import Store

_TELL_SECONDS = 10.0


def results(specs: Iterable[Spec], store: Store, jobs: int, what: str) -> dict[Spec, dict[str, Any]]:
    """The results of all rows; how far they are is told on stderr."""
    wanted = sorted(set(specs), key=lambda spec: (spec.scenario, spec.seed, spec.startup_seconds))
    found: dict[Spec, dict[str, Any]] = {}
    begun = told = time.monotonic()
    work = [(spec, store) for spec in wanted]
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        for spec, result in workers.imap_unordered(_execute, work):
            found[spec] = result
            now = time.monotonic()
            if now - told >= _TELL_SECONDS or len(found) == len(wanted):
                told = now
                rest = (now - begun) / len(found) * (len(wanted) - len(found))
                print(
                    f"{what}: {len(found)} of {len(wanted)}, {now - begun:.0f} s, {rest:.0f} s to go", file=sys.stderr
                )
    return found


def _execute(work: tuple[Spec, Store]) -> tuple[Spec, dict[str, Any]]:
    spec, store = work
    return spec, execute(spec, store)
