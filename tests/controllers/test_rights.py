"""What the operator asks of the API server in the course of a Model's life, against what the chart lets it do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.placements import placement

from goodput.adapters.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GPU_TYPES,
    LEASES,
    MODELS,
    OWNED,
    PODS,
    SERVICES,
    SLOS,
    Resource,
)
from goodput.adapters.kube_errors import Conflict
from goodput.domain.identity import Key
from goodput.domain.plan import ChangePlan, CheckRun
from goodput_controllers.crds import compare_crds
from goodput_controllers.telling import subject_of

TEMPLATES = Path(__file__).resolve().parents[2] / "charts" / "goodput" / "templates"
# (group, resource, verb)
Right = tuple[str, str, str]


def granted() -> set[Right]:
    """Rules of the operator's roles, read from the templates: they hold no placeholder but names."""
    helpers = (TEMPLATES / "_helpers.tpl").read_text()
    block = helpers.split('define "goodput.namespacedRules" -}}')[1].split("{{- end -}}")[0]
    blocks = [block]
    for document in (TEMPLATES / "rbac.yaml").read_text().split("\n---\n"):
        if "\nrules:\n" in document:
            text = document.split("\nrules:\n")[1]
            blocks.append(re.sub(r"{{.*?}}", lambda found: "" if "if" in found[0] or "end" in found[0] or "include" in
                                 found[0] else "name", text))  # fmt: skip
    found: set[Right] = set()
    for text in blocks:
        for rule in yaml.safe_load(text) or ():
            for group in rule["apiGroups"]:
                found |= {(group, resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    return found


class Recorder:
    """Takes down every request as the right that it needs."""

    def __init__(self, bench: Any) -> None:
        self.rights: set[Right] = set()
        self._bench = bench
        self.conflict_once = False
        bench.api.fault = self

    def __call__(self, verb: str, resource: Resource, name: str) -> None:
        verb, _, subresource = verb.partition("-")
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        there = any(key.name == name for key in self._bench.api.objects[resource.plural])
        verbs = {"apply": {"patch"} if there else {"patch", "create"}, "watching": {"watch"}}.get(verb, {verb})
        self.rights |= {(resource.group, plural, each) for each in verbs}
        if self.conflict_once and verb == "apply" and resource is DEPLOYMENTS:
            self.conflict_once = False
            raise Conflict("the object has been modified", 409)


async def test_the_chart_grants_what_is_used_and_nothing_else(new_bench: Callable[..., Any]) -> None:
    """Both ways: no request without a right, no right without a request."""
    bench = new_bench()
    recorder = Recorder(bench)
    bench.furnish()
    bench.api.put(GPU_TYPES, {"metadata": {"name": "l40s"}, "spec": {}})
    await bench.start()
    container = {"name": "eval", "image": "evals:7"}
    check = {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    bench.apply(bench.model(qualityCheck=check))
    bench.law.wanted["llama"] = 3
    await bench.tick(2)
    bench.play_kubelet()
    recorder.conflict_once = True
    bench.law.wanted["llama"] = 2
    await bench.tick(3)
    # A change with its canary and its check.
    bench.law.changes["llama"] = ChangePlan(id="c1", held=True, canary=placement(), check=CheckRun.RUN)
    await bench.tick()
    bench.law.changes.clear()
    await bench.tick()
    # What an older operator left: objects of every kind, of names that are none today.
    owner = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]["metadata"]["ownerReferences"]
    labels = {"app.kubernetes.io/managed-by": "goodput", "goodput.dev/model": "llama"}
    for resource in (SERVICES, CONFIG_MAPS):
        bench.api.put(
            resource,
            {"metadata": {"name": "llama-old", "namespace": "a", "labels": labels, "ownerReferences": owner}},
        )
    bench.apply(bench.model(routing={"mode": "None"}))
    await bench.tick(3)
    assert all(Key("a", "llama-old") not in bench.api.objects[resource.plural] for resource in (SERVICES, CONFIG_MAPS))
    # An event that repeats is counted.
    teller, intent = bench.operator.reconciler.teller, bench.law.snapshots[-1].models[0].intent
    for _ in range(2):
        await teller.events.record(subject_of(intent.key, intent.uid), reason="Again", action="Again", note="again")
    await compare_crds(bench.api)
    # The Lease: made, read by another, renewed.
    for _ in range(2):
        await bench.operator.lease._try()
    await bench.stop()

    # kopf watches our own kinds by itself; the routers' Role hands "get" on, which the operator must hold for that.
    elsewhere = {(kind.group, kind.plural, "watch") for kind in (MODELS, SLOS, GPU_TYPES)}
    elsewhere |= {(PODS.group, PODS.plural, "get")}
    used = recorder.rights | elsewhere
    assert used - granted() == set(), "requests that the API server would refuse"
    assert granted() - used == set(), "rights that nothing uses"
    deleted = {plural for _, plural, verb in recorder.rights if verb == "delete"}
    assert {resource.plural for resource in OWNED} <= deleted
    assert (LEASES.group, LEASES.plural, "update") in recorder.rights
