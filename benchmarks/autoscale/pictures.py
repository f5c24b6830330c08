"""One picture for each trace: what was offered and good, and the replicas of the policies that matter."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from benchmarks.autoscale import runs
from benchmarks.autoscale.compared import Compared, Entry

from goodput.simulator.policies import OURS

mpl.use("svg")

from matplotlib import pyplot as plt  # after the choice of what draws

_MINUTE_SECONDS = 60.0


def draw(each: Compared, path: Path) -> None:
    """Requests/s offered and good by minute above, replicas asked for below, of the first seed."""
    shown: list[Entry] = [each.entry(OURS), each.entry(runs.STATIC_PEAK), each.entry(runs.ORACLE)]
    best = each.verdict.best
    shown += [entry for entry in each.entries if best is not None and entry.label == best.name and entry not in shown]
    first = shown[0].results[0]
    minutes = range(len(first["offered"]))
    with plt.rc_context({"svg.hashsalt": each.scenario.name, "svg.fonttype": "none", "font.size": 9}):
        figure, (load, replicas) = plt.subplots(2, 1, sharex=True, figsize=(9.0, 5.0), constrained_layout=True)
        load.step(minutes, [count / _MINUTE_SECONDS for count in first["offered"]], "k", where="post", label="offered")
        for entry in shown:
            result = entry.results[0]
            load.step(minutes, [count / _MINUTE_SECONDS for count in result["good"]], where="post", label=entry.label)
            replicas.step(minutes, result["desired"], where="post", label=entry.label)
        load.set_ylabel("requests/s, good by policy")
        replicas.set_ylabel("replicas asked for")
        replicas.set_xlabel("minutes")
        replicas.set_ylim(bottom=0.0)
        load.set_title(f"{each.scenario.title}, start-up {each.startup_seconds:g} s")
        load.legend(fontsize=7)
        replicas.legend(fontsize=7)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
