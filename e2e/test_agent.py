# ruff: noqa: F811 - fixtures come by import
"""What pods on the simulated nodes see and reach: kubelet, kube-proxy and cluster DNS on the real API server."""

from __future__ import annotations

import asyncio
import base64

import aiohttp
import pytest

from agent_pods import (
    CONTAINER_SECURITY,
    Node,
    condition,
    container,
    node,  # noqa: F401 - a fixture
    pod,
    reason,
    server,
    service,
    state_of,
)


async def test_a_service_reaches_ready_pods_by_name_and_port(node: Node) -> None:
    """By ClusterIP from outside, by each DNS form from a pod; an unready pod gets nothing; no pod: connection reset."""
    await node.apply(
        pod("a", server(), labels={"app": "web"}),
        pod("b", server(), labels={"app": "web"}),
        pod("client", container()),
        service("web", "web"),
        service("empty", "nobody"),
    )
    await node.ready("a", "b", "client")
    url = await node.world.service_url(node.namespace, "web")

    async def names() -> set[str]:
        seen = set()
        async with aiohttp.ClientSession(headers={"Connection": "close"}) as session:
            for _ in range(6):
                async with session.get(url) as answer:
                    seen.add(await answer.text())
        return seen

    assert await names() == {"a", "b"}
    for host in (
        "web",
        f"web.{node.namespace}",
        f"web.{node.namespace}.svc",
        f"web.{node.namespace}.svc.cluster.local",
    ):
        code = f"import urllib.request as u; print(u.urlopen('http://{host}/').read().decode())"
        ended, output = await node.execute("client", "python3", "-c", code)
        assert (ended, output.strip() in {"a", "b"}) == (0, True), f"{host}: {output}"
    await node.execute("a", "touch", "/state/ready.fail")
    await node.until("a", "not Ready", lambda p: condition(p, "Ready") == "False")
    await asyncio.sleep(0.3)
    assert await names() == {"b"}
    empty = await node.world.service_url(node.namespace, "empty")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(empty)


async def test_environment_and_volumes_come_from_the_api_server(node: Node) -> None:
    """valueFrom, envFrom, ConfigMap, Secret, downward API, sized /dev/shm and a read-only root file system."""
    secret = base64.b64encode(b"s3cret").decode()
    await node.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"K": "v", "file": "text"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"token": secret}},
        pod(
            "p",
            container(
                command=["sh", "-c", "echo '$(JOINED)' > /work/out; sleep 600"],
                envFrom=[{"configMapRef": {"name": "c"}}],
                env=[
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "JOINED", "value": "$(K)-$(TOKEN)-$(MISSING)-$$(K)"},
                ],
                resources={"limits": {"memory": "256Mi"}},
                securityContext={**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
                volumeMounts=[
                    {"name": "work", "mountPath": "/work"},
                    {"name": "config", "mountPath": "/etc/app"},
                    {"name": "one", "mountPath": "/etc/one.conf", "subPath": "file"},
                    {"name": "secret", "mountPath": "/secrets"},
                    {"name": "info", "mountPath": "/info"},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            ),
            labels={"app": "p"},
            volumes=[
                {"name": "work", "emptyDir": {}},
                {"name": "config", "configMap": {"name": "c", "items": [{"key": "file", "path": "sub/f"}]}},
                {"name": "one", "configMap": {"name": "c"}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {
                    "name": "info",
                    "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
                },
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            ],
        ),
    )
    await node.ready("p")

    async def shell(script: str) -> str:
        return (await node.execute("p", "sh", "-c", script))[1].strip()

    assert await shell("cat /work/out") == "v-s3cret-$(MISSING)-$(K)"
    assert (await shell('echo "$NODE"')) in {each.name for each in node.world.config.nodes}
    assert await shell("echo $MEM") == "256"
    assert await shell("cat /etc/app/sub/f /etc/one.conf /secrets/token") == "texttexts3cret"
    assert 'app="p"' in (await shell("cat /info/labels")).splitlines()
    assert "Read-only" in await shell("touch /nope")
    assert "Read-only" in await shell("touch /usr/nope")
    assert "Read-only" in await shell("touch /etc/app/nope")
    assert "No space" in await shell("head -c 9000000 /dev/zero > /dev/shm/full")
    assert await shell("ls /work") == "out"


async def test_pods_see_neither_the_world_nor_each_other(node: Node) -> None:
    """The agent's folder, with the volumes and Secrets of all pods, is not visible from within one."""
    await node.apply(pod("p", container()))
    await node.ready("p")

    code, _ = await node.execute("p", "sh", "-c", f"ls {node.world.directory}/agent/pods")
    hidden, _ = await node.execute("p", "sh", "-c", f"ls /.host{node.world.directory}/agent/pods")

    assert code != 0
    assert hidden != 0


async def test_a_pod_calls_the_api_server_as_its_service_account(node: Node) -> None:
    """The projected token is the account's own: RBAC decides, at the in-cluster address with the cluster's CA."""
    await node.apply(pod("p", container()))
    await node.ready("p")
    script = (
        "import json,os,ssl,urllib.request as u\n"
        "d='/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "c=ssl.create_default_context(cafile=d+'ca.crt')\n"
        "b={'apiVersion':'authentication.k8s.io/v1','kind':'SelfSubjectReview'}\n"
        "r=u.Request('https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews'%("
        "os.environ['KUBERNETES_SERVICE_HOST'],os.environ['KUBERNETES_SERVICE_PORT']),json.dumps(b).encode(),"
        "{'Authorization':'Bearer '+open(d+'token').read(),'Content-Type':'application/json'})\n"
        "print(json.load(u.urlopen(r,context=c))['status']['userInfo']['username'])"
    )

    code, output = await node.execute("p", "python3", "-c", script)

    assert (code, output.strip()) == (0, f"system:serviceaccount:{node.namespace}:default")


async def test_a_missing_secret_holds_the_container_until_it_is_there(node: Node) -> None:
    """CreateContainerConfigError names the Secret; once it exists the container starts without a restart."""
    await node.apply(
        pod("p", container(env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]))
    )
    found = await node.until("p", "held", lambda p: reason(p, "waiting") == "CreateContainerConfigError")
    assert 'secret "late" not found' in state_of(found)["waiting"]["message"]
    assert found["status"]["phase"] == "Pending"

    await node.world.kubectl("create", "secret", "generic", "late", "-n", node.namespace, "--from-literal=k=v")
    found = await node.until("p", "Running", lambda p: p["status"]["phase"] == "Running")
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_network_policies_hold_at_the_last_hop(node: Node) -> None:
    """Only the pod that the policy names reaches the server through its Service; the probe of the node always does."""
    await node.apply(
        pod("server", server(), labels={"app": "web"}),
        pod("friend", container(), labels={"role": "friend"}),
        pod("stranger", container()),
        service("web", "web"),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "web"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": "http"}]}
                ],
            },
        },
    )
    await node.ready("server", "friend", "stranger")
    code = "import urllib.request as u; print(u.urlopen('http://web/', timeout=5).read().decode())"

    allowed = await node.execute("friend", "python3", "-c", code)
    refused, output = await node.execute("stranger", "python3", "-c", code)

    assert allowed == (0, "server\n")
    assert refused != 0
    assert "reset" in output.lower()
    url = await node.world.service_url(node.namespace, "web")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


async def test_a_pod_may_ask_about_the_connections_it_accepts(node: Node) -> None:
    """Over the admission socket, a direct connection from another pod is traced to that pod and judged."""
    await node.apply(
        pod("server", server(), labels={"app": "web"}),
        pod("friend", container(), labels={"role": "friend"}),
        pod("stranger", container()),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "web"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}],
            },
        },
    )
    await node.ready("server", "friend", "stranger")
    ip = (await node.pod("server"))["status"]["podIP"]
    script = (
        "import json,socket\n"
        f"c=socket.create_connection(('{ip}',8000)); a=socket.socket(socket.AF_UNIX)\n"
        "a.connect('/run/goodput-sim/admit.sock')\n"
        f"q={{'peer':list(c.getsockname()),'pod':'{node.namespace}/server','port':8000}}\n"
        "a.sendall(json.dumps(q).encode()+b'\\n'); print(json.loads(a.recv(4096))['allow'])"
    )

    assert await node.execute("friend", "python3", "-c", script) == (0, "True\n")
    assert await node.execute("stranger", "python3", "-c", script) == (0, "False\n")


async def test_a_mounted_config_map_is_refreshed_and_service_names_appear(node: Node) -> None:
    """A Service created later resolves in pods that run already."""
    await node.apply(pod("p", container()), pod("web", server(), labels={"app": "web"}))
    await node.ready("p", "web")
    await node.apply(service("later", "web"))
    code = "import urllib.request as u; print(u.urlopen('http://later/', timeout=5).read().decode())"

    async def resolves() -> bool:
        return (await node.execute("p", "python3", "-c", code)) == (0, "web\n")

    await node.world.wait_for(resolves, what="the new name", timeout_seconds=10)
