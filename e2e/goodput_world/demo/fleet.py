"""Reads the fleet from the API server: engine pods, the Deployment's replicas, the Model's status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import kubernetes
import orjson

from goodput_world.demo.ledger import Ledger, PodSighting

_ENGINE_SELECTOR = "goodput.dev/model={model},goodput.dev/pool=serve"
_GPU_RESOURCES = ("nvidia.com/gpu",)
_MODEL_PERIOD_SECONDS = 3.0


def sighting(pod: Mapping[str, Any]) -> PodSighting:
    """An engine pod, reduced to what the ledger counts."""
    meta = pod["metadata"]
    conditions = pod.get("status", {}).get("conditions") or []
    limits = [container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"]]
    return PodSighting(
        uid=meta["uid"],
        created_epoch=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        gpus=sum(int(limit.get(name, 0)) for limit in limits for name in _GPU_RESOURCES),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        terminating="deletionTimestamp" in meta,
    )


@dataclass(slots=True)
class ModelView:
    """What the Model's status says, as far as the display shows it."""

    decision: str = ""
    attainment: str = ""
    cost_per_hour: str = ""
    conditions: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> ModelView:
        """Read a Model as the API server returns it; what is absent stays empty."""
        status = model.get("status") or {}
        last = status.get("lastDecision") or {}
        words = [last.get("action", ""), last.get("reason", ""), last.get("message", "")]
        return cls(
            decision=" · ".join(word for word in words if word),
            attainment=str(status.get("attainment") or ""),
            cost_per_hour=str(status.get("costPerHour") or ""),
            conditions=tuple(
                (each["type"], each["status"], each.get("reason", "")) for each in status.get("conditions") or []
            ),
        )


class FleetReader:
    """Polls once a second in a thread. A failed read keeps the last picture: a moment without an API server removes no
    pod.
    """

    def __init__(self, api: kubernetes.client.ApiClient, namespace: str, model: str) -> None:
        self._core = kubernetes.client.CoreV1Api(api)
        self._apps = kubernetes.client.AppsV1Api(api)
        self._custom = kubernetes.client.CustomObjectsApi(api)
        self._namespace = namespace
        self._model = model
        self._model_read_at = 0.0
        self.ledger = Ledger()
        self.view = ModelView()
        self.failed_reads = 0

    async def run(self, period_seconds: float = 1.0) -> None:
        """Read until cancelled."""
        while True:
            started = time.monotonic()
            try:
                await asyncio.to_thread(self.read)
            except (kubernetes.client.ApiException, OSError) as error:
                self.failed_reads += 1
                self.view.decision = f"(the API server did not answer: {type(error).__name__})"
            await asyncio.sleep(max(0.1, period_seconds - (time.monotonic() - started)))

    def is_ready(self) -> bool:
        """Whether the Model's condition Ready is True now. Raises ApiException when the API server refuses."""
        return any(name == "Ready" and status == "True" for name, status, _ in self._read_model().conditions)

    def read(self) -> None:
        """One look. Raises ApiException when the API server refuses."""
        selector = _ENGINE_SELECTOR.format(model=self._model)
        pods = self._items(self._core.list_namespaced_pod, self._namespace, label_selector=selector)
        deployments = self._items(
            self._apps.list_namespaced_deployment, self._namespace, field_selector=f"metadata.name={self._model}-serve"
        )
        desired = int(deployments[0]["spec"]["replicas"]) if deployments else None
        self.ledger.observe(time.time(), desired, map(sighting, pods))
        if time.monotonic() - self._model_read_at > _MODEL_PERIOD_SECONDS:
            self._model_read_at = time.monotonic()
            self.view = self._read_model()

    def _read_model(self) -> ModelView:
        return ModelView.of(
            self._custom.get_namespaced_custom_object(
                "goodput.dev", "v1alpha1", self._namespace, "models", self._model, _request_timeout=10
            )
        )

    @staticmethod
    def _items(method: Any, namespace: str, **options: Any) -> list[dict[str, Any]]:
        """The raw items of a list call: the client's typed objects cost ten times as much to make."""
        answer = method(namespace, _preload_content=False, _request_timeout=10, **options)
        items: list[dict[str, Any]] = orjson.loads(answer.data)["items"]
        return items
