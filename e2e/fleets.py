"""One Model and its fleet as a test sees it: what is written, what its conditions say, its pods, and its answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from goodput_world.cluster import SYSTEM_NAMESPACE, Cluster
from goodput_world.world import World

GROUP = "goodput.dev/v1alpha1"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SLOW = "Qwen/Qwen3-14B"
"""Engines of this model take about 90 ms a token in the session's world."""
CHAT: Mapping[str, Any] = {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"}
_READY_SECONDS = 90.0


def slo(spec: Mapping[str, Any] = CHAT, name: str = "chat") -> dict[str, Any]:
    """An SLO object."""
    return {"apiVersion": GROUP, "kind": "SLO", "metadata": {"name": name}, "spec": dict(spec)}


def model(name: str, **spec: Any) -> dict[str, Any]:
    """A Model object of `chat`; `spec` over the smallest one."""
    whole = {"model": LLAMA, "slo": "chat", **spec}
    return {"apiVersion": GROUP, "kind": "Model", "metadata": {"name": name}, "spec": whole}


def hosts(*names: str) -> dict[str, Any]:
    """A `spec.template` that keeps engines on these nodes."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


@dataclass(slots=True)
class Stream:
    """One streamed completion: every byte of its body, and how it ended (`error` is empty when properly)."""

    tokens: int
    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    error: str = ""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: float = 0.0

    def problem(self) -> str:
        """What is missing or wrong at the client, empty when every token and the proper end are there."""
        if self.error or self.status != 200:
            return f"HTTP {self.status} after {len(self.body)} bytes: {self.error or bytes(self.body[:200])!r}"
        events = [part.removeprefix(b"data: ") for part in bytes(self.body).split(b"\n\n") if part]
        if not events or events[-1] != b"[DONE]":
            return f"{len(events)} events, the last is {events[-1:]}, not [DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        reasons = [choice["finish_reason"] for choice in choices]
        if reasons != [None] * (self.tokens - 1) + ["length"]:
            return f"{len(choices)} of {self.tokens} tokens, then {reasons[-1:]}"
        if any(not choice["text"] for choice in choices) or len({chunk["id"] for chunk in chunks}) != 1:
            return "a token without text, or of another request"
        if [each["completion_tokens"] for each in usage] != [self.tokens]:
            return f"usage says {usage}"
        return ""


@dataclass(slots=True)
class Fleet:
    """The Model `name` of a namespace."""

    cluster: Cluster
    namespace: str
    name: str

    # --- what is written ---------------------------------------------------------------------------------------------

    async def apply(self, **spec: Any) -> None:
        """Apply the Model."""
        await self.cluster.apply(model(self.name, **spec), namespace=self.namespace)

    async def patch(self, spec: Mapping[str, Any], *, resource: str = "", name: str = "") -> None:
        """Merge-patch `spec` of the Model, or of another object of the namespace."""
        body = json.dumps({"spec": spec})
        await self.cluster.kubectl(
            *("patch", resource or "model.goodput.dev", name or self.name, "-n", self.namespace),
            *("--type=merge", "-p", body),
        )

    async def reset(self, spec: Mapping[str, Any]) -> None:
        """Give the Model exactly this spec again, and wait until one replica serves and nothing is wrong."""
        whole = [{"op": "replace", "path": "/spec", "value": dict(spec)}]
        await self.cluster.kubectl(
            *("patch", "model.goodput.dev", self.name, "-n", self.namespace, "--type=json", "-p", json.dumps(whole))
        )
        await self.wait_serving()
        await self.wait_condition("Stalled", "False")

    async def seen(self, spec: Mapping[str, Any], *, timeout_seconds: float = 60.0) -> None:
        """Patch the Model, and wait until the operator has said something about that generation."""
        await self.patch(spec)

        async def observed() -> bool:
            found = await self.object()
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        await self.cluster.wait_for(
            observed, what=f"status of the newest generation of {self.name}", timeout_seconds=timeout_seconds
        )

    # --- what is seen ------------------------------------------------------------------------------------------------

    async def object(self) -> dict[str, Any]:
        """The Model."""
        return await self.cluster.get("model.goodput.dev", self.name, namespace=self.namespace)

    async def condition(self, kind: str) -> dict[str, Any]:
        """One condition of the Model; empty when it is not there, or speaks of an older generation."""
        found = await self.object()
        conditions = found.get("status", {}).get("conditions", [])
        generation = found["metadata"]["generation"]
        for each in conditions:
            if each["type"] == kind and each.get("observedGeneration", generation) == generation:
                condition: dict[str, Any] = each
                return condition
        return {}

    async def wait_condition(
        self, kind: str, status: str, reason: str = "", *, text: str = "", timeout_seconds: float = _READY_SECONDS
    ) -> dict[str, Any]:
        """Wait for a condition with this status, reason and text in its message."""
        last: dict[str, Any] = {}

        async def holds() -> dict[str, Any] | None:
            nonlocal last
            last = await self.condition(kind)
            fits = last.get("status") == status and reason in {"", last.get("reason")} and text in last["message"]
            return last if fits else None

        try:
            return await self.cluster.wait_for(
                holds, what=f"{self.name}: {kind}={status} {reason}", timeout_seconds=timeout_seconds
            )
        except Exception as error:
            raise AssertionError(f"{error}; the condition was {last}") from error

    async def wait_serving(self, replicas: int = 1, *, timeout_seconds: float = _READY_SECONDS) -> None:
        """Wait until so many engines and both routers are available and settled, and the Model says Ready."""

        async def settled() -> bool:
            for kind, wanted in (("serve", replicas), ("router", 2)):
                found = await self.deployment(kind)
                status = found.get("status", {})
                if found["spec"]["replicas"] != wanted or status.get("availableReplicas") != wanted:
                    return False
                if status.get("updatedReplicas") != wanted or status.get("replicas") != wanted:
                    return False
                if status.get("observedGeneration") != found["metadata"]["generation"]:
                    return False
            return (await self.condition("Ready")).get("status") == "True"

        await self.cluster.wait_for(
            settled, what=f"{self.name} serving with {replicas} replicas", timeout_seconds=timeout_seconds
        )

    async def wait_none_terminating(self, *, timeout_seconds: float = 60.0) -> None:
        """Wait until every pod that was told to go is gone."""

        async def none() -> bool:
            return not [pod for pod in await self.pods() if pod["metadata"].get("deletionTimestamp")]

        await self.cluster.wait_for(none, what=f"no pod of {self.name} terminating", timeout_seconds=timeout_seconds)

    async def deployment(self, pool: str = "serve") -> dict[str, Any]:
        """The Deployment of a pool."""
        return await self.cluster.get("deployment", f"{self.name}-{pool}", namespace=self.namespace)

    async def pods(self, pool: str = "") -> list[dict[str, Any]]:
        """The pods of this Model, or of one pool of it."""
        selector = f"goodput.dev/model={self.name}" + (f",goodput.dev/pool={pool}" if pool else "")
        return await self.cluster.list_objects("pods", namespace=self.namespace, selector=selector)

    async def uids(self, pool: str = "") -> frozenset[str]:
        """UIDs of those that were not told to go."""
        pods = await self.pods(pool)
        return frozenset(pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp"))

    async def running(self) -> dict[str, int]:
        """Streams in flight by engine pod, as the routers say: their metrics are open to all, the engines are not."""
        engines = {f"http://{pod['status']['podIP']}:8000": pod["metadata"]["name"] for pod in await self.pods("serve")}
        found = dict.fromkeys(engines.values(), 0)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            for pod in await self.pods("router"):
                async with session.get(f"http://{pod['status']['podIP']}:29000/metrics") as answer:
                    text = await answer.text()
                for worker, count in re.findall(r'^vllm_router_running_requests{worker="([^"]+)"} (\S+)$', text, re.M):
                    if worker in engines:
                        found[engines[worker]] += round(float(count))
        return found

    # --- requests ----------------------------------------------------------------------------------------------------

    async def url(self) -> str:
        """Where users send requests."""
        return await self.cluster.service_url(self.namespace, self.name)

    async def complete(self, *, served: str = LLAMA) -> str:
        """One short completion through Service and router; its text. Raises aiohttp.ClientError when it fails."""
        body = {"model": served, "prompt": "to be or not", "max_tokens": 8}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.post(f"{await self.url()}/v1/completions", json=body) as answer,
        ):
            if answer.status != 200:
                raise aiohttp.ClientError(f"HTTP {answer.status}: {await answer.text()}")
            return str((await answer.json())["choices"][0]["text"])

    async def wait_answers(self, *, served: str = LLAMA, timeout_seconds: float = 60.0) -> None:
        """Wait until a completion is served."""
        await self.cluster.wait_for(
            lambda: self.complete(served=served), what=f"an answer of {self.name}", timeout_seconds=timeout_seconds
        )


def writes_of_operator(world: World, fleet: Fleet, since: datetime) -> set[str]:
    """Kinds of objects that the operator has written in the namespace of a Model since then, by the audit log.

    Events are left out: they tell, they change nothing.
    """
    user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:goodput"
    writes = world.audit.writes(since, datetime.now(UTC))
    ours = [write for write in writes if write.user == user and write.namespace == fleet.namespace]
    return {write.kind for write in ours if write.resource != "events"}


async def stream(session: aiohttp.ClientSession, url: str, served: str, prompt: list[int], into: Stream) -> None:
    """Stream one completion of exactly `into.tokens` tokens to its end; what the peer does wrong ends in `into`."""
    body = {
        "model": served,
        "prompt": prompt,
        "max_tokens": into.tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = asyncio.get_running_loop().time()
    try:
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            into.status = answer.status
            async for piece in answer.content.iter_any():
                into.body += piece
                into.started.set()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        into.error = repr(error)
    finally:
        into.seconds = asyncio.get_running_loop().time() - started
        into.started.set()
