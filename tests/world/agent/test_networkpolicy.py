"""The NetworkPolicy matcher."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_world.agent.networkpolicy import Endpoint, decide, open_to_all, selector_matches

ENGINE = Endpoint("models", {"app": "engine"}, {"team": "a"}, "127.1.0.1", {"http": 8000}, "models/engine")
ROUTER = Endpoint("models", {"app": "router"}, {"team": "a"}, "127.1.0.2")
STRANGER = Endpoint("models", {"app": "other"}, {"team": "a"}, "127.1.0.3")
PROMETHEUS = Endpoint("monitoring", {"app": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"}, "127.1.0.4")
OUTSIDE = Endpoint(None, ip="10.1.2.3")


def policy(spec: dict[str, Any], name: str = "p", namespace: str = "models") -> dict[str, Any]:
    """A NetworkPolicy object."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


FLEET = policy(
    {
        "podSelector": {"matchLabels": {"app": "engine"}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": "router"}}}], "ports": [{"port": "http"}]},
            {
                "from": [
                    {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                        "podSelector": {"matchLabels": {"app": "prometheus"}},
                    }
                ]
            },
        ],
    }
)


@pytest.mark.parametrize(
    ("source", "port", "want"),
    [
        (ROUTER, 8000, True),
        (ROUTER, 9000, False),
        (STRANGER, 8000, False),
        (PROMETHEUS, 8000, True),
        (PROMETHEUS, 1, True),
        (Endpoint("monitoring", {"app": "router"}, PROMETHEUS.namespace_labels), 8000, False),
        (OUTSIDE, 8000, False),
    ],
    ids=[
        "router on the named port",
        "router on another port",
        "other pod of the namespace",
        "prometheus of its namespace",
        "no ports: all",
        "both selectors must match",
        "from outside",
    ],
)
def test_an_isolated_pod_is_reached_only_by_its_rules(source: Endpoint, port: int, want: bool) -> None:
    """Selectors within one peer are and-ed, a pod selector alone stays in the policy's namespace."""
    verdict = decide([FLEET], source, ENGINE, port)

    assert verdict.allowed is want
    assert verdict.policy == "models/p"


def test_without_a_policy_all_is_allowed() -> None:
    """A policy of another namespace, or for other pods, isolates nothing here."""
    others = [
        policy({"podSelector": {}, "policyTypes": ["Ingress"]}, namespace="elsewhere"),
        policy({"podSelector": {"matchLabels": {"app": "router"}}, "policyTypes": ["Ingress"]}),
    ]

    verdict = decide(others, STRANGER, ENGINE, 8000)

    assert verdict.allowed
    assert verdict.policy == ""


def test_policies_add_up() -> None:
    """Deny-all beside a policy that allows: the pod is reached, and the allowing one is named."""
    deny = policy({"podSelector": {}, "policyTypes": ["Ingress"]}, name="deny")

    assert decide([deny, FLEET], ROUTER, ENGINE, 8000).policy == "models/p"
    refused = decide([deny], ROUTER, ENGINE, 8000)
    assert (refused.allowed, refused.policy, refused.direction) == (False, "models/deny", "Ingress")


def test_an_empty_rule_allows_everyone() -> None:
    """`ingress: [{}]` is open, `ingress: []` is closed."""
    assert decide([policy({"podSelector": {}, "ingress": [{}]})], OUTSIDE, ENGINE, 1).allowed
    assert not decide([policy({"podSelector": {}, "ingress": []})], OUTSIDE, ENGINE, 1).allowed


def test_address_blocks_match_outside_peers_only() -> None:
    """With an exception carved out; pods are matched by selectors."""
    block = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}}
    rules = [policy({"podSelector": {}, "ingress": [{"from": [block]}]})]

    assert decide(rules, OUTSIDE, ENGINE, 1).allowed
    assert not decide(rules, Endpoint(None, ip="10.9.1.1"), ENGINE, 1).allowed
    assert not decide(rules, Endpoint("models", ip="10.1.1.1"), ENGINE, 1).allowed


def test_port_ranges_and_protocols() -> None:
    """endPort is inclusive; a UDP rule does not open TCP; an unknown named port opens nothing."""
    ranged = [policy({"podSelector": {}, "ingress": [{"ports": [{"port": 8000, "endPort": 8010}]}]})]

    assert decide(ranged, OUTSIDE, ENGINE, 8010).allowed
    assert not decide(ranged, OUTSIDE, ENGINE, 8011).allowed
    udp = [policy({"podSelector": {}, "ingress": [{"ports": [{"port": 8000, "protocol": "UDP"}]}]})]
    assert not decide(udp, OUTSIDE, ENGINE, 8000).allowed
    named = [policy({"podSelector": {}, "ingress": [{"ports": [{"port": "grpc"}]}]})]
    assert not decide(named, OUTSIDE, ENGINE, 8000).allowed


def test_egress_of_the_source_counts_too() -> None:
    """Egress isolates only where a policy has it: by policyTypes, or by its egress rules."""
    to_engine = {"to": [{"podSelector": {"matchLabels": {"app": "engine"}}}], "ports": [{"port": "http"}]}
    router_only = policy({"podSelector": {"matchLabels": {"app": "router"}}, "egress": [to_engine]})

    assert decide([router_only], ROUTER, ENGINE, 8000).allowed is True
    refused = decide([router_only], ROUTER, PROMETHEUS, 9090)
    assert (refused.allowed, refused.direction) == (False, "Egress")
    assert decide([FLEET], ENGINE, PROMETHEUS, 9090).allowed


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "z", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
        ({"key": "z", "operator": "In", "values": ["1"]}, False),
    ],
)
def test_selector_expressions(expression: dict[str, Any], want: bool) -> None:
    """NotIn holds for a label that is absent."""
    assert selector_matches({"matchExpressions": [expression]}, {"a": "1"}) is want


def test_null_and_empty_selectors_differ() -> None:
    """None selects nothing, {} everything."""
    assert selector_matches(None, {}) is False
    assert selector_matches({}, {}) is True


def test_open_to_all_is_said_only_of_what_every_source_may_reach() -> None:
    """Ports without peers, or no policy at all; never once any pod of the cluster has its egress limited."""
    ports_only = policy({"podSelector": {}, "ingress": [{"ports": [{"port": 8000}]}]})
    from_anywhere = policy({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]})

    assert open_to_all([], ENGINE, 8000)
    assert open_to_all([ports_only], ENGINE, 8000)
    assert not open_to_all([ports_only], ENGINE, 8001)
    assert not open_to_all([FLEET], ENGINE, 8000)
    assert not open_to_all([from_anywhere], ENGINE, 8000)
    egress = policy({"podSelector": {}, "egress": [{}]}, namespace="elsewhere")
    assert not open_to_all([ports_only, egress], ENGINE, 8000)
