# ruff: noqa: F811 - fixtures come by import
"""Pods on the simulated nodes live and die as a kubelet lets them, on the real API server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from agent_pods import (
    Node,
    condition,
    container,
    lives,
    node,  # noqa: F401 - a fixture
    pod,
    reason,
    server,
    service,
    state_of,
)
from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import Api, load_kubeconfig
from goodput_world.agent.seeder import Seeder, bare_pods


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
