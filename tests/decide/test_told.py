"""What `MetricsFresh` tells of metrics that are not: the cause first, and what to do."""

import re
from pathlib import Path

import yaml
from msgspec.structs import replace
from tests.adapters.test_readings import model_telemetry
from tests.decide.builders import CHAT, KEY, START, counters, intent, one, pod, pool, telemetry, view
from tests.decide.test_replicas import condition

from goodput.adapters.metric_names import POD_LABEL_MODEL, POD_LABEL_POOL
from goodput.adapters.tables import Tables
from goodput.adapters.telemetry import Wanted
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.observed import ModelTelemetry
from goodput.domain.plan import ModelPlan
from goodput.resources.kinds.monitor import pod_monitor

ROOT = Path(__file__).parents[2]
LACKS = "Prometheus has no scrape of 1 of 1 ready pods, such as a"


def _told(plan: ModelPlan) -> str:
    return next(each.message for each in plan.conditions if each.type is ConditionType.METRICS_FRESH)


def _unlabelled() -> ModelTelemetry:
    """As it is read where engines are scraped by a job that leaves our labels out."""
    found = Tables()
    found.unlabelled_namespaces = frozenset({KEY.namespace})
    wanted = Wanted(key=KEY, objective=CHAT, pods=("a",), serving=("a",), routers=("router-0",))
    return model_telemetry(wanted, found)


def test_the_relabelling_that_lacks_is_told():
    """Rules that give the labels that series are told apart by, in one line beside the pod that is missed."""
    assert _unlabelled().problem == LACKS
    plan = one(view(pool(pod("a")), _unlabelled()))
    assert condition(plan, ConditionType.METRICS_FRESH)[1] is ConditionReason.METRICS_UNLABELLED
    told = _told(plan)
    assert told.endswith(f"({LACKS})")
    assert len(told) < 700
    *rules, monitor = (yaml.safe_load(text) for text in re.findall(r"\{.*?\}", told))
    labels = next(rule["regex"] for rule in rules if rule.get("action") == "labelmap")
    for label in (POD_LABEL_MODEL, POD_LABEL_POOL):
        assert re.fullmatch(labels, f"__meta_kubernetes_pod_label_{label}")[1] == label
    assert {rule.get("target_label") for rule in rules} == {None, "namespace", "pod"}
    rendered = pod_monitor(intent(), "serve", 15, {})["spec"]
    assert monitor == {"podTargetLabels": rendered["podTargetLabels"]}
    page = (ROOT / "charts/goodput/README.md").read_text()
    documented = re.search(r"```yaml\n(- {action: labelmap.*?)```", page, re.DOTALL)
    assert documented is not None
    assert yaml.safe_load(documented[1]) == rules


def test_what_engines_lack_does_not_hide_what_the_router_does():
    """Both are told: demand is not known, and a pod is not scraped."""
    seen = replace(telemetry(counters("a", START), requests=None), problem=LACKS)
    plan = one(view(pool(pod("a")), seen))
    assert condition(plan, ConditionType.METRICS_FRESH)[1] is ConditionReason.METRICS_MISSING
    assert _told(plan) == f"no request counter of a router pod ({LACKS})"
    alone = one(view(pool(pod("a")), replace(seen, problem="")))
    assert _told(alone) == "no request counter of a router pod"
