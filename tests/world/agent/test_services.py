"""Endpoints, names and variables of Services."""

from __future__ import annotations

from typing import Any

from goodput_world.agent.services import Admission, ServiceProxy, backends


def pod(
    name: str, *, ready: bool = True, deleting: bool = False, ports: dict[str, int] | None = None
) -> dict[str, Any]:
    """A pod with label app=web."""
    listed = [{"name": key, "containerPort": value} for key, value in (ports or {"http": 8000}).items()]
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "labels": {"app": "web"}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "ports": listed}]},
        "status": {
            "podIP": f"127.1.0.{name[-1]}",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def service(name: str = "web", namespace: str = "ns", ip: str = "127.2.0.1", **spec: Any) -> dict[str, Any]:
    """A Service for app=web, port 80 to the named port http."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterIP": ip,
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            **spec,
        },
    }


def proxy(*services: dict[str, Any], pods: list[dict[str, Any]] | None = None) -> ServiceProxy:
    """A proxy that knows these Services; it listens on nothing."""
    made = ServiceProxy(
        pods_of=lambda namespace: pods or [] if namespace == "ns" else [],
        admit=lambda *_: Admission(True),
        api_address=("127.0.0.1", 6443),
    )
    made.set_services({f"{s['metadata']['namespace']}/{s['metadata']['name']}": s for s in services})
    return made


def test_backends_are_ready_pods_with_the_named_port() -> None:
    """Neither unready nor terminating pods, nor those without the port; a name leads to each pod's own number."""
    pods = [
        pod("b2", ports={"http": 9000}),
        pod("a1"),
        pod("c3", ready=False),
        pod("d4", deleting=True),
        pod("e5", ports={"metrics": 1}),
    ]
    web = service()

    found = backends(web, web["spec"]["ports"][0], pods)

    assert [(backend.ip, backend.port) for backend in found] == [("127.1.0.1", 8000), ("127.1.0.2", 9000)]


def test_a_service_without_selector_has_no_backends() -> None:
    """Nothing is reached by accident."""
    assert backends(service(selector=None), {"port": 80}, [pod("a1")]) == []


def test_the_target_port_defaults_to_the_port() -> None:
    """As in the API."""
    assert backends(service(), {"port": 80}, [pod("a1")])[0].port == 80


def test_backends_are_chosen_anew_when_pods_change() -> None:
    """The list is kept only until then."""
    pods = [pod("a1")]
    made = proxy(service(), pods=pods)
    assert len(made.backends_of(("127.2.0.1", 80))) == 1
    pods.append(pod("b2"))

    assert len(made.backends_of(("127.2.0.1", 80))) == 1
    made.pods_changed()
    assert len(made.backends_of(("127.2.0.1", 80))) == 2


def test_short_names_resolve_in_their_own_namespace_only() -> None:
    """Every other form resolves everywhere."""
    made = proxy(service())

    assert made.host_lines("ns") == ["127.2.0.1\tweb web.ns web.ns.svc web.ns.svc.cluster.local"]
    assert made.host_lines("other") == ["127.2.0.1\tweb.ns web.ns.svc web.ns.svc.cluster.local"]


def test_a_headless_service_resolves_to_its_pods() -> None:
    """One line a pod."""
    made = proxy(service(ip="None"), pods=[pod("a1"), pod("b2"), pod("c3", ready=False)])

    assert [line.split("\t")[0] for line in made.host_lines("ns")] == ["127.1.0.1", "127.1.0.2"]
    assert made.has_headless


def test_service_variables() -> None:
    """The API server's always; those of the namespace with service links: a Service named vllm sets VLLM_PORT."""
    api = service("kubernetes", "default", "127.2.0.9", selector=None, ports=[{"name": "https", "port": 443}])
    made = proxy(service("vllm"), api)

    assert made.environment("ns", links=True)["VLLM_PORT"] == "tcp://127.2.0.1:80"
    without = made.environment("ns", links=False)
    assert "VLLM_PORT" not in without
    assert (without["KUBERNETES_SERVICE_HOST"], without["KUBERNETES_SERVICE_PORT"]) == ("127.2.0.9", "443")
    assert "VLLM_PORT" not in made.environment("other", links=True)


def test_where_the_port_cannot_be_bound_pods_go_to_the_api_server_itself() -> None:
    """Port 443 is privileged: without the right to it, the in-cluster address is the real one."""
    api = service("kubernetes", "default", "127.2.0.9", selector=None, ports=[{"name": "https", "port": 443}])
    made = proxy(api)
    made.unbound["127.2.0.9", 443] = "permission denied"

    env = made.environment("ns", links=False)

    assert (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]) == ("127.0.0.1", "6443")
