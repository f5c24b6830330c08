"""Our scaling law beside the rivals' laws, a static peak and an oracle, on public traces.

For each trace and start-up time a table of all policies, a verdict on ours and a picture. Runs are kept in
`build/autoscaling` by all that determines them: what is stopped goes on, what did not change is not run again.

    python benchmarks/autoscaling.py [--quick] [--jobs 2] [--search [LAW...]] [--traces NAME...] [--start-ups S...]
                                     [--seeds N] [--ramp-seeds N] [--page FILE]

`--quick`: two traces at 100 s, one seed. `--search`: try every variant of the rivals' grids again, or of those laws
that are named (otherwise the variants that an earlier search found, `benchmarks/data/autoscaling/grids.csv`, are run).
`--page`: write the report there too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.autoscale import pool, report, runs, searched  # noqa: E402
from benchmarks.autoscale.compared import (  # noqa: E402
    SEARCHED,
    VARIED_SECONDS,
    Compared,
    base_specs,
    compared,
    search_specs,
    tuned,
    tuned_specs,
)
from benchmarks.autoscale.runs import Spec  # noqa: E402
from benchmarks.autoscale.scenarios import BY_NAME, RAMP, RAMP_BY_CHANCE, SCENARIOS, Scenario  # noqa: E402
from benchmarks.autoscale.store import Store  # noqa: E402

from goodput.simulator.policies import OURS  # noqa: E402

OUT = ROOT / "build" / "autoscaling"
QUICK = ("ramp", "azure-conversation")
# What is asked of ours on the published ramp: scenario, start-up, policy, least attainment, most average replicas.
RAMP_SEEDS = 10
RAMP_ASKED = (
    ("start-up 100 s", RAMP, 100.0, OURS, 0.98, 5.5),
    ("start-up 135 s", RAMP, 135.0, OURS, 0.98, 5.5),
    *((name.removeprefix(f"{OURS}, "), RAMP, 100.0, name, 0.97, 5.8) for name in list(runs.BELIEFS)[:2]),
    ("Poisson arrivals", RAMP_BY_CHANCE, 100.0, OURS, 0.97, 5.8),
)


def ramp_rows(store: Store, jobs: int, seeds: Sequence[int]) -> str:
    """What is asked of ours on the ramp."""
    rows = [
        (
            name,
            [Spec(scenario=scenario.name, startup_seconds=startup, seed=seed, policy=policy) for seed in seeds],
            *asked,
        )
        for name, scenario, startup, policy, *asked in RAMP_ASKED
    ]
    found = pool.results([spec for _, specs, *_ in rows for spec in specs], store, jobs, "ramp")
    return report.ramp_table([(name, [found[spec] for spec in specs], *asked) for name, specs, *asked in rows])


def gather(
    pairs: Sequence[tuple[Scenario, float]], seeds: Sequence[int], store: Store, jobs: int, *, search: Sequence[str]
) -> list[Compared]:
    """All rows of all traces and start-ups."""
    specs = [spec for scenario, startup in pairs for spec in base_specs(scenario, startup, seeds)]
    results: dict[Spec, dict[str, Any]] = dict(pool.results(specs, store, jobs, "policies"))
    grids = searched.read()
    if search:
        for scenario, startup in pairs:
            variants = [spec for spec in search_specs(scenario, startup, searched.SEED, store) if spec.policy in search]
            grids = searched.merged(grids, pool.results(variants, store, jobs, f"grids, {scenario.name} {startup:g}"))
            searched.write(grids)
    specs = []
    for scenario, startup in pairs:
        ours = Spec(scenario=scenario.name, startup_seconds=startup, seed=searched.SEED, policy=OURS)
        specs += tuned_specs(tuned(grids, scenario, startup, results[ours]["attainment"]), scenario, startup, seeds)
    results |= pool.results(specs, store, jobs, "tuned") if specs else {}
    return [
        compared(scenario, startup, seeds, results=results, grids=grids, store=store) for scenario, startup in pairs
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 if something that should be shown is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--search", nargs="*", choices=SEARCHED, metavar="LAW")
    parser.add_argument("--traces", nargs="+", choices=[each.name for each in SCENARIOS], metavar="NAME")
    parser.add_argument("--start-ups", nargs="+", type=float, metavar="S")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--ramp-seeds", type=int)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(arguments)
    store = Store(OUT / "runs")
    names = options.traces or (QUICK if options.quick else [each.name for each in SCENARIOS])
    startups = options.start_ups or ([VARIED_SECONDS] if options.quick else None)
    seeds = range(1, 1 + (options.seeds or (1 if options.quick else 2)))
    pairs = [
        (BY_NAME[name], startup)
        for name in names
        for startup in BY_NAME[name].startups
        if startups is None or startup in startups
    ]
    everything = gather(
        pairs, list(seeds), store, options.jobs, search=SEARCHED if options.search == [] else options.search or ()
    )
    text = report.verdicts(everything) + "\n"
    if RAMP.name in names:
        count = options.ramp_seeds or (1 if options.quick else RAMP_SEEDS)
        text += ramp_rows(store, options.jobs, range(1, 1 + count)) + "\n"
    print(text)
    text += "".join(map(report.table, everything))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "report.md").write_text(text, encoding="utf-8")
    if options.page:
        options.page.write_text(report.page(text, len(seeds)), encoding="utf-8")
    failed = {
        f"{each.scenario.name} {each.startup_seconds:g}": missed
        for each in everything
        if (missed := report.misses(each.verdict, each.scenario.name))
    }
    (OUT / "misses.json").write_text(json.dumps(failed, indent=2), encoding="utf-8")
    from benchmarks.autoscale.pictures import draw  # matplotlib takes a second to load

    for each in everything:
        draw(each, OUT / f"{each.scenario.name}-{each.startup_seconds:g}.svg")
    print(f"{OUT / 'report.md'}, a picture for each table beside it", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
