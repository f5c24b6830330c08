"""The simulated nodes honour the rendered pod: as kubelet, kube-proxy and cluster DNS would, on the real API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import Api, load_kubeconfig
from goodput_world.agent.seeder import Seeder, bare_pods
from goodput_world.world import World

CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}

SERVER = """
import http.server, os, signal, sys, time
name = os.environ["HOSTNAME"]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(30):
                self.wfile.write(b"2\\r\\n%02d\\r\\n" % i)
                self.wfile.flush()
                time.sleep(0.1)
            self.wfile.write(b"0\\r\\n\\r\\n")
            return
        code = 200 if not os.path.exists("/state" + self.path + ".fail") else 500
        body = name.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((os.environ["POD_IP_BIND"], 8000), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: print("TERM", time.time(), flush=True) or os._exit(0)
    if os.environ.get("QUICK") else print("TERM", time.time(), flush=True))
server.serve_forever()
"""
"""Answers with its pod's name; a file /state/PATH.fail makes PATH fail. Without QUICK it ignores SIGTERM."""


def container(**changes: Any) -> dict[str, Any]:
    """A container that sleeps, unless told otherwise."""
    return {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["sleep", "600"],
        "securityContext": CONTAINER_SECURITY,
        **changes,
    }


def server(**changes: Any) -> dict[str, Any]:
    """A container that runs SERVER with a readiness probe every second."""
    return container(
        **{
            "command": ["python3", "-c", SERVER],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "state", "mountPath": "/state"}],
            "env": [{"name": "QUICK", "value": "1"}],
            **changes,
        }
    )


def pod(name: str, *containers: dict[str, Any], labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that ends within a second when deleted, unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": POD_SECURITY,
            "containers": list(containers),
            "volumes": [{"name": "state", "emptyDir": {}}],
            **spec,
        },
    }


def service(name: str, app: str) -> dict[str, Any]:
    """A Service, port 80, of the pods with label app."""
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": ports},
    }


class Node:
    """What the tests ask of the agent and of the pods."""

    def __init__(self, world: World, namespace: str) -> None:
        """In one namespace."""
        self.world = world
        self.namespace = namespace

    @property
    def control(self) -> str:
        """URL of the agent's control interface."""
        return str(json.loads((self.world.directory / "agent" / "agent.json").read_text())["control"])

    async def post(self, path: str, body: Any = None) -> Any:
        """Ask the control interface."""
        async with aiohttp.ClientSession() as session, session.post(self.control + path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def state(self) -> Any:
        """What runs where."""
        async with aiohttp.ClientSession() as session, session.get(self.control + "/state") as answer:
            return await answer.json()

    async def execute(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command inside a pod."""
        answer = await self.post(f"/pods/{self.namespace}/{name}/exec", {"command": command})
        return answer["exit_code"], answer["output"]

    async def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        await self.world.apply(list(objects), namespace=self.namespace)

    async def pod(self, name: str) -> dict[str, Any]:
        """A pod."""
        return await self.world.get("pod", name, namespace=self.namespace)

    async def delete(self, name: str, *options: str) -> None:
        """Delete a pod without waiting."""
        await self.world.kubectl("delete", "pod", name, "-n", self.namespace, "--wait=false", *options)

    async def until(self, name: str, what: str, test: Any, timeout_seconds: float = 40) -> dict[str, Any]:
        """The pod once `test` of it is true."""

        async def holds() -> dict[str, Any] | None:
            found = await self.pod(name)
            return found if test(found) else None

        return await self.world.wait_for(holds, what=f"pod {name} {what}", timeout_seconds=timeout_seconds)

    async def ready(self, *names: str) -> None:
        """Wait until these pods are Ready."""
        for name in names:
            await self.until(name, "Ready", lambda p: condition(p, "Ready") == "True")

    async def gone(self, name: str, timeout_seconds: float = 30) -> None:
        """Wait until a pod is gone."""

        async def absent() -> bool:
            found = await self.world.kubectl("get", "pod", name, "-n", self.namespace, "--ignore-not-found")
            return not found.strip()

        await self.world.wait_for(absent, what=f"pod {name} gone", timeout_seconds=timeout_seconds)


def condition(found: Mapping[str, Any], kind: str) -> str | None:
    """The status of a pod's condition."""
    listed = found.get("status", {}).get("conditions", ())
    return next((each["status"] for each in listed if each["type"] == kind), None)


def state_of(found: Mapping[str, Any], key: str = "state") -> dict[str, Any]:
    """The state (or lastState) of a pod's first container."""
    statuses = found.get("status", {}).get("containerStatuses") or [{}]
    value: dict[str, Any] = statuses[0].get(key) or {}
    return value


def reason(found: Mapping[str, Any], kind: str, key: str = "state") -> str | None:
    """The reason of a waiting or terminated first container."""
    value: str | None = state_of(found, key).get(kind, {}).get("reason")
    return value


def lives(pid: int) -> bool:
    """Whether a process runs: one that has ended may still wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


@pytest.fixture
def node(world: World, namespace: str) -> Node:
    """The agent, in the test's namespace."""
    return Node(world, namespace)


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


async def test_an_unknown_image_is_never_pulled(node: Node) -> None:
    """ErrImagePull, then ImagePullBackOff; a pull that fails for a while heals."""
    await node.apply(pod("typo", container(image="busyboxx:1")))
    await node.until("typo", "backing off", lambda p: reason(p, "waiting") == "ImagePullBackOff")

    await node.post("/images/pull-fail?image=busybox:9")
    await node.apply(pod("flaky", container(image="busybox:9")))
    await node.until("flaky", "failing", lambda p: reason(p, "waiting") in {"ErrImagePull", "ImagePullBackOff"})
    await node.post("/images/pull-ok?image=busybox:9")
    await node.ready("flaky")


async def test_a_limit_below_an_engines_claim_is_oom_killed(node: Node) -> None:
    """The claim is the plant's host memory plus the offload size; the process need not really use it."""
    limits = {"limits": {"memory": "4Gi"}}
    claim = [{"name": "GOODPUT_SIM_HOST_MEMORY_BYTES", "value": str(3 * 2**30)}]
    engine = {"image": "vllm/vllm-openai:v0.33.0", "env": claim, "resources": limits}
    sleeping = ["sh", "-c", "sleep 600", "vllm", "--kv-offloading-size"]
    await node.apply(
        pod("fits", container(**engine, command=[*sleeping, "0.5"])),
        pod("claims", container(**engine, command=[*sleeping, "2"])),
    )

    found = await node.until("claims", "killed", lambda p: reason(p, "terminated", "lastState") == "OOMKilled")

    assert state_of(found, "lastState")["terminated"]["exitCode"] == 137
    assert (await node.pod("fits"))["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_real_memory_above_the_limit_is_oom_killed(node: Node) -> None:
    """The resident memory of a container's processes counts, children included."""
    hog = "x = bytearray(120 * 2**20)\nimport time; time.sleep(600)"
    limits = {"limits": {"memory": "64Mi"}}
    await node.apply(pod("hog", container(command=["sh", "-c", f"python3 -c '{hog}'; true"], resources=limits)))

    await node.until("hog", "killed", lambda p: reason(p, "terminated", "lastState") == "OOMKilled")


async def test_a_crashing_container_backs_off(node: Node) -> None:
    """It restarts at once, then waits; the last state tells exit code and, if asked for, the end of the log."""
    await node.apply(
        pod(
            "crash",
            container(command=["sh", "-c", "echo boom >&2; exit 3"], terminationMessagePolicy="FallbackToLogsOnError"),
        )
    )

    found = await node.until("crash", "backing off", lambda p: reason(p, "waiting") == "CrashLoopBackOff")

    last = state_of(found, "lastState")["terminated"]
    assert (last["exitCode"], last["reason"], last["message"]) == (3, "Error", "boom\nboom\n")
    assert found["status"]["containerStatuses"][0]["restartCount"] == 1
    assert found["status"]["phase"] == "Running"


async def test_a_pod_that_may_end_ends(node: Node) -> None:
    """restartPolicy Never: Succeeded or Failed by exit code; a program that is not there is a StartError, 128."""
    await node.apply(
        pod("good", container(command=["true"]), restartPolicy="Never"),
        pod("bad", container(command=["false"]), restartPolicy="Never"),
        pod("absent", container(command=["no-such-program"]), restartPolicy="Never"),
    )

    await node.until("good", "Succeeded", lambda p: p["status"]["phase"] == "Succeeded")
    await node.until("bad", "Failed", lambda p: p["status"]["phase"] == "Failed")
    found = await node.until("absent", "Failed", lambda p: p["status"]["phase"] == "Failed")
    ended = state_of(found)["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "executable file not found" in ended["message"]


async def test_init_containers_run_first_and_share_volumes(node: Node) -> None:
    """One after the other, each to its end, before the containers."""
    mounts = [{"name": "state", "mountPath": "/state"}]
    await node.apply(
        pod(
            "p",
            container(command=["sh", "-c", "echo main >> /state/order; sleep 600"], volumeMounts=mounts),
            initContainers=[
                container(
                    name=name, command=["sh", "-c", f"sleep 0.3; echo {name} >> /state/order"], volumeMounts=mounts
                )
                for name in ("one", "two")
            ],
        )
    )
    await node.ready("p")
    await asyncio.sleep(0.3)

    assert (await node.execute("p", "cat", "/state/order"))[1].split() == ["one", "two", "main"]
    found = await node.pod("p")
    assert condition(found, "Initialized") == "True"
    assert [each["state"]["terminated"]["exitCode"] for each in found["status"]["initContainerStatuses"]] == [0, 0]


async def test_probes_gate_readiness_and_restart(node: Node) -> None:
    """Readiness waits for the startup probe; a liveness failure restarts the container, exec probes run inside."""
    await node.apply(
        pod(
            "p",
            server(
                startupProbe={
                    "exec": {"command": ["test", "-e", "/state/up"]},
                    "periodSeconds": 1,
                    "failureThreshold": 60,
                },
                livenessProbe={
                    "httpGet": {"path": "/live", "port": 8000},
                    "periodSeconds": 1,
                    "failureThreshold": 2,
                },
            ),
        )
    )
    await node.until("p", "Running", lambda p: p["status"]["phase"] == "Running")
    await asyncio.sleep(2.5)
    found = await node.pod("p")
    assert condition(found, "Ready") == "False"
    assert found["status"]["containerStatuses"][0]["started"] is False
    await node.execute("p", "touch", "/state/up")
    await node.ready("p")
    assert (await node.pod("p"))["status"]["containerStatuses"][0]["started"] is True

    await node.execute("p", "touch", "/state/live.fail")
    await node.until("p", "restarted", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1)


async def test_deletion_runs_pre_stop_then_term_then_kill(node: Node) -> None:
    """preStop delays SIGTERM; a process that ignores it lives until the grace is over, and no longer."""
    await node.apply(
        pod("p", server(env=[], lifecycle={"preStop": {"sleep": {"seconds": 2}}}), terminationGracePeriodSeconds=5)
    )
    await node.ready("p")
    log = Path((await node.state())["pods"][f"{node.namespace}/p"]["containers"]["main"]["log"])
    begun = datetime.now(UTC).timestamp()
    await node.delete("p")
    await node.until("p", "terminating", lambda p: "deletionTimestamp" in p["metadata"])
    await node.gone("p")
    took = datetime.now(UTC).timestamp() - begun

    term = float(log.read_text().split()[1])
    assert 1.9 <= term - begun <= 3.5
    assert 4.8 <= took <= 8


async def test_a_terminating_pod_finishes_its_streams_and_gets_no_new_ones(node: Node) -> None:
    """A stream through the Service outlives the deletion byte for byte; new connections go to the other pod at once."""
    lifecycle = {"preStop": {"sleep": {"seconds": 4}}}
    await node.apply(
        pod("a", server(lifecycle=lifecycle), labels={"app": "web"}, terminationGracePeriodSeconds=10),
        service("web", "web"),
    )
    await node.ready("a")
    url = await node.world.service_url(node.namespace, "web")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/stream") as stream:
        await node.apply(pod("b", server(), labels={"app": "web"}))
        await node.ready("b")
        await node.delete("a")
        await node.until("a", "terminating", lambda p: "deletionTimestamp" in p["metadata"])
        found = await node.pod("a")
        assert condition(found, "Ready") == "True"  # as with a real kubelet: the probe still succeeds
        async with aiohttp.ClientSession(headers={"Connection": "close"}) as fresh:
            for _ in range(4):
                async with fresh.get(url) as answer:
                    assert await answer.text() == "b"
        assert await stream.text() == "".join(f"{number:02d}" for number in range(30))


async def test_a_forced_deletion_kills_at_once(node: Node) -> None:
    """Grace 0: the pod is gone from the API server and its process from the machine."""
    await node.apply(pod("p", server(env=[]), terminationGracePeriodSeconds=60))
    await node.ready("p")
    pid = (await node.state())["pods"][f"{node.namespace}/p"]["containers"]["main"]["pid"]
    await node.delete("p", "--grace-period=0", "--force")
    await node.gone("p")

    async def dead() -> bool:
        return not lives(pid)

    await node.world.wait_for(dead, what="the process to end", timeout_seconds=5)


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


async def test_a_pod_put_on_a_full_node_is_rejected(node: Node) -> None:
    """Bound past the scheduler, a pod that asks for more GPUs than are free becomes Failed, as at a real kubelet."""
    greedy = container(resources={"limits": {"nvidia.com/gpu": "9"}})
    await node.apply(pod("p", greedy, nodeName="l40s-1", restartPolicy="Never"))

    found = await node.until("p", "Failed", lambda p: p["status"].get("phase") == "Failed")

    assert found["status"]["reason"] == "OutOfnvidia.com/gpu"


async def test_a_failed_node_kills_its_pods_and_reports_nothing(node: Node) -> None:
    """Processes die, status and Lease stay as they were; when the node is back its pods run again, same addresses."""
    await node.apply(pod("p", server(), nodeSelector={"kubernetes.io/hostname": "l40s-1"}))
    await node.ready("p")
    pid = (await node.state())["pods"][f"{node.namespace}/p"]["containers"]["main"]["pid"]
    before = await node.pod("p")
    await node.post("/nodes/l40s-1/fail")
    try:
        assert not lives(pid)
        await asyncio.sleep(2)
        assert (await node.pod("p"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    finally:
        await node.post("/nodes/l40s-1/recover")

    async def again() -> bool:
        running = (await node.state())["pods"].get(f"{node.namespace}/p")
        return bool(running and running["containers"]["main"]["ready"])

    await node.world.wait_for(again, what="the pod to run again", timeout_seconds=20)
    assert (await node.pod("p"))["status"]["podIP"] == before["status"]["podIP"]


async def test_a_killed_process_is_restarted(node: Node) -> None:
    """SIGKILL from outside is exit 137, reason Error: not every 137 is a lack of memory."""
    await node.apply(pod("p", server()))
    await node.ready("p")
    await node.post(f"/pods/{node.namespace}/p/kill")

    found = await node.until("p", "restarted", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1)

    last = state_of(found, "lastState")["terminated"]
    assert (last["exitCode"], last["reason"]) == (137, "Error")
    await node.ready("p")


async def test_a_steady_state_is_silent(node: Node) -> None:
    """Ready pods with probes every second cause no write but Lease renewals."""
    await node.apply(pod("p", server()), pod("q", server()))
    await node.ready("p", "q")
    await asyncio.sleep(2)
    start = datetime.now(UTC)
    await asyncio.sleep(5)

    writes = node.world.audit.writes(start, datetime.now(UTC))
    of_nodes = [write for write in writes if write.user_agent.startswith("goodput-world-agent")]
    assert [write for write in of_nodes if write.namespace == node.namespace] == []


async def test_a_mounted_config_map_is_refreshed_and_service_names_appear(node: Node) -> None:
    """A Service created later resolves in pods that run already."""
    await node.apply(pod("p", container()), pod("web", server(), labels={"app": "web"}))
    await node.ready("p", "web")
    await node.apply(service("later", "web"))
    code = "import urllib.request as u; print(u.urlopen('http://later/', timeout=5).read().decode())"

    async def resolves() -> bool:
        return (await node.execute("p", "python3", "-c", code)) == (0, "web\n")

    await node.world.wait_for(resolves, what="the new name", timeout_seconds=10)


async def test_the_seeder_makes_nodes_and_pods_that_look_alive(node: Node) -> None:
    """Nodes Ready with a Lease, pods Running and Ready, without a process."""
    nodes = [NodeConfig(f"seed-{number}", gpus=8, gpu_type="l40s", virtual=True) for number in range(3)]
    endpoint = load_kubeconfig(node.world.kubeconfig)
    async with Api(endpoint) as api:
        seeder = Seeder(api, nodes, "127.250.0.0/16")
        try:
            assert await seeder.create_nodes() == 3
            assert await seeder.create_pods(bare_pods(node.namespace, 20, nodes, gpu_every=2)) == 20
            assert await seeder.mark_ready("app=seeded") == 20
            assert await seeder.mark_ready("app=seeded") == 0
            pods = await node.world.list_objects("pods", namespace=node.namespace)
            assert {(p["status"]["phase"], condition(p, "Ready")) for p in pods} == {("Running", "True")}
            assert len({p["status"]["podIP"] for p in pods}) == 20
            for each in nodes:
                found = await node.world.get("node", each.name)
                assert condition(found, "Ready") == "True"
                assert found["status"]["allocatable"]["nvidia.com/gpu"] == "8"
                await node.world.get("lease", each.name, namespace="kube-node-lease")
        finally:
            for each in nodes:
                await node.world.kubectl("delete", "node", each.name, "--ignore-not-found")
            await node.world.kubectl(
                "delete", "pods", "-n", node.namespace, "-l", "app=seeded", "--grace-period=0", "--force"
            )


async def test_pods_run_on_while_the_api_server_is_away(node: Node) -> None:
    """Its restart disturbs no process; what happened meanwhile is reported afterwards, and new pods start."""
    await node.apply(pod("p", server()), pod("q", server()))
    await node.ready("p", "q")
    key = f"{node.namespace}/p"
    pid = (await node.state())["pods"][key]["containers"]["main"]["pid"]
    node.world.control_plane.kill_apiserver()
    await node.post(f"/pods/{node.namespace}/q/kill")
    await asyncio.sleep(1)
    await node.world.control_plane.restart_apiserver()

    await node.apply(pod("r", container()))
    await node.ready("r")
    await node.until("q", "restarted", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1)
    await node.ready("p", "q")
    assert (await node.state())["pods"][key]["containers"]["main"]["pid"] == pid
    assert lives(pid)


async def test_containers_die_with_the_agent_and_come_back_with_it(node: Node) -> None:
    """However it ends: no process is left, children included; a new agent runs the same pods at the same addresses."""
    agent = node.world.agent
    assert agent is not None
    await node.apply(
        pod("p", server(), labels={"app": "web"}),
        pod("q", container(command=["sh", "-c", "sleep 601; true"])),
        service("web", "web"),
    )
    await node.ready("p", "q")
    before = await node.pod("p")
    running = (await node.state())["pods"].values()
    pids = [one["pid"] for each in running for one in each["containers"].values() if one["pid"]]
    assert len(pids) >= 2
    agent.kill()
    await asyncio.sleep(0.5)
    assert [pid for pid in pids if lives(pid)] == []

    agent.start()

    async def again() -> bool:
        running = (await node.state())["pods"]
        return all(running[f"{node.namespace}/{name}"]["containers"]["main"]["ready"] for name in ("p", "q"))

    await node.world.wait_for(again, what="the pods to run again", timeout_seconds=60)
    found = await node.until("p", "restarted", lambda p: p["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert found["status"]["podIP"] == before["status"]["podIP"]
    await node.ready("p")
    sleeping = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.read_bytes() == b"sleep\x00601\x00"]
    assert len(sleeping) == 1
    url = await node.world.service_url(node.namespace, "web")
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert await answer.text() == "p"
