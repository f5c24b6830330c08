"""NetworkPolicies: may this source reach that pod on that port? Pure.

Known limits: `ipBlock` matches the addresses of peers outside the pod range only, as with most network plugins;
SCTP and ICMP are not modelled.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One side of a connection. `namespace` None: outside the cluster, known by its address only.

    `ports` maps the named container ports of a pod to numbers.
    """

    namespace: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    ip: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a connection may be made; `policy` is NAMESPACE/NAME of the one that allows it, or of one that isolates.

    `policy` is empty when no policy selects either pod.
    """

    allowed: bool
    policy: str
    direction: str = ""


def selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector against labels. None matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
        present = key in labels
        holds = {
            "In": present and labels.get(key) in values,
            "NotIn": not present or labels[key] not in values,
            "Exists": present,
            "DoesNotExist": not present,
        }.get(operator)
        if holds is None:
            raise ValueError(f"unknown operator {operator!r} in a label selector")
        if not holds:
            return False
    return True


def _types(spec: Mapping[str, Any]) -> Sequence[str]:
    written: Sequence[str] | None = spec.get("policyTypes")
    if written:
        return written
    return ("Ingress", "Egress") if spec.get("egress") else ("Ingress",)


def _peer_matches(peer: Mapping[str, Any], other: Endpoint, policy_namespace: str) -> bool:
    block = peer.get("ipBlock")
    if block is not None:
        if other.namespace is not None or not other.ip:
            return False
        address = ipaddress.ip_address(other.ip)
        if address not in ipaddress.ip_network(block["cidr"], strict=False):
            return False
        return not any(address in ipaddress.ip_network(hole, strict=False) for hole in block.get("except") or ())
    if other.namespace is None:
        return False
    namespaces = peer.get("namespaceSelector")
    if namespaces is None:
        if other.namespace != policy_namespace:
            return False
    elif not selector_matches(namespaces, other.namespace_labels):
        return False
    pods = peer.get("podSelector")
    return pods is None or selector_matches(pods, other.labels)


def _port_matches(rule_port: Mapping[str, Any], port: int, protocol: str, destination: Endpoint) -> bool:
    if rule_port.get("protocol", "TCP") != protocol:
        return False
    written = rule_port.get("port")
    if written is None:
        return True
    number = destination.ports.get(written) if isinstance(written, str) else written
    if number is None:
        return False
    return bool(number <= port <= rule_port.get("endPort", number))


def _direction(
    policies: Iterable[Mapping[str, Any]],
    *,
    kind: str,
    subject: Endpoint,
    other: Endpoint,
    port: int,
    protocol: str,
) -> Verdict:
    """One direction: `subject` is the pod whose policies are asked, `other` its peer."""
    isolating = ""
    destination = subject if kind == "Ingress" else other
    rules_key, peers_key = ("ingress", "from") if kind == "Ingress" else ("egress", "to")
    for policy in policies:
        metadata, spec = policy["metadata"], policy["spec"]
        if metadata["namespace"] != subject.namespace or kind not in _types(spec):
            continue
        if not selector_matches(spec.get("podSelector") or {}, subject.labels):
            continue
        name = f"{metadata['namespace']}/{metadata['name']}"
        isolating = isolating or name
        for rule in spec.get(rules_key) or ():
            ports, peers = rule.get("ports"), rule.get(peers_key)
            if ports and not any(_port_matches(item, port, protocol, destination) for item in ports):
                continue
            if peers and not any(_peer_matches(peer, other, metadata["namespace"]) for peer in peers):
                continue
            return Verdict(True, name, kind)
    return Verdict(not isolating, isolating, kind if isolating else "")


def open_to_all(policies: Sequence[Mapping[str, Any]], destination: Endpoint, port: int) -> bool:
    """Whether this port is open to every source there could be: then nobody needs to find out who is calling."""
    if any("Egress" in _types(policy["spec"]) for policy in policies):
        return False
    return decide(policies, Endpoint(None), destination, port).allowed


def decide(
    policies: Sequence[Mapping[str, Any]],
    source: Endpoint,
    destination: Endpoint,
    port: int,
    protocol: str = "TCP",
) -> Verdict:
    """Whether `source` may connect to `port` of the pod `destination`: egress of the one, then ingress of the other."""
    if source.namespace is not None:
        verdict = _direction(policies, kind="Egress", subject=source, other=destination, port=port, protocol=protocol)
        if not verdict.allowed:
            return verdict
    return _direction(policies, kind="Ingress", subject=destination, other=source, port=port, protocol=protocol)
