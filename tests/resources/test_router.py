"""The router: its command line is vllm-router's, it finds the engines, and it drains."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from goodput.resources import names
from goodput.resources.inputs import KubeObject, ObjectKey, RenderInput
from goodput.simulator.fleet.settings import RouterSettings

Make = Callable[..., RenderInput]
Objects = Callable[[RenderInput], dict[ObjectKey, KubeObject]]


def _pod(objects: dict[ObjectKey, KubeObject]) -> KubeObject:
    spec: KubeObject = objects["Deployment", "llama-8b-router"]["spec"]["template"]["spec"]
    return spec


def _parsed(args: list[str]) -> Any:
    return importlib.import_module("vllm_router.launch_router").parse_router_args(args)


def test_vllm_router_takes_our_command_line(make_render: Make, rendered_of: Objects) -> None:
    """The real parser reads every flag as meant: this Model's engines in its namespace, on all addresses."""
    parsed = _parsed(_pod(rendered_of(make_render()))["containers"][0]["args"])
    assert parsed.service_discovery is True
    assert parsed.selector == {"goodput.dev/model": "llama-8b", "goodput.dev/pool": "serve"}
    assert parsed.service_discovery_namespace == "team-a"
    assert parsed.service_discovery_port == names.ENGINE_PORT
    assert (parsed.host, parsed.port) == ("0.0.0.0", names.ROUTER_PORT)
    assert (parsed.prometheus_host, parsed.prometheus_port) == ("0.0.0.0", names.ROUTER_METRICS_PORT)
    assert parsed.policy == "cache_aware"


def test_a_dead_engine_is_found_within_seconds_and_a_full_one_is_not_dead(
    make_render: Make, rendered_of: Objects
) -> None:
    """Health checks act within 5 s; circuits open late and shortly, since engines answer 503 when they are full."""
    parsed = _parsed(_pod(rendered_of(make_render()))["containers"][0]["args"])
    assert parsed.health_check_interval_secs * parsed.health_failure_threshold <= 5
    assert parsed.cb_failure_threshold >= 10 * parsed.retry_max_retries
    assert parsed.cb_timeout_duration_secs <= 2


def test_the_simulated_routers_are_those_that_are_rendered(make_render: Make, rendered_of: Objects) -> None:
    """What decides where a request goes is the same in both; trees hold characters there and tokens here."""
    parsed = _parsed(_pod(rendered_of(make_render()))["containers"][0]["args"])
    simulated = RouterSettings()
    assert parsed.policy == simulated.balance
    assert parsed.balance_abs_threshold == simulated.abs_threshold
    assert parsed.balance_rel_threshold == simulated.rel_threshold
    assert parsed.cache_threshold == simulated.cache_threshold
    assert parsed.max_tree_size == 4 * simulated.tree_tokens
    assert parsed.retry_max_retries == simulated.attempts
    assert parsed.health_check_interval_secs == simulated.health_interval_seconds
    assert parsed.health_failure_threshold == simulated.health_failures
    assert parsed.cb_failure_threshold == simulated.circuit_failures
    assert parsed.cb_timeout_duration_secs == simulated.circuit_open_seconds


def test_a_router_outlives_its_requests(make_render: Make, rendered_of: Objects) -> None:
    """The grace period holds the longest request that the router allows, after the time in which Services let go."""
    pod = _pod(rendered_of(make_render()))
    container = pod["containers"][0]
    parsed = _parsed(container["args"])
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert sleep >= 5
    assert pod["terminationGracePeriodSeconds"] > sleep + parsed.request_timeout_secs


def test_probes_ask_what_the_router_answers(make_render: Make, rendered_of: Objects) -> None:
    """Readiness follows the engines, liveness does not: routers must not restart because engines are away."""
    container = _pod(rendered_of(make_render()))["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readiness"
    assert container["livenessProbe"]["httpGet"]["path"] == "/liveness"
