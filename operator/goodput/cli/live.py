"""A Model of a cluster as files would hold it, with what it is measured to get and the GPUs that are free for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from goodput.adapters.kinds import CONFIG_MAPS, GPU_TYPES, NODES, PODS, SLOS
from goodput.adapters.kube_errors import NotFound, Refused
from goodput.adapters.records import NodeRecord, OwnPod, node_record, pod_record
from goodput.cli.session import field as part
from goodput.cli.session import get_model, list_all
from goodput.decide.reach import reach
from goodput.domain.identity import Key
from goodput.runtime.carriers import carried
from goodput.runtime.supply import supply_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from goodput.adapters.kube import KubeClient
    from goodput.adapters.objects import Object
    from goodput.domain.intent import GpuType


@dataclass(slots=True)
class Cluster:
    """What was read. `nodes` None: they may not be listed, so that every GPU type counts as there in plenty."""

    documents: list[Object]
    nodes: list[NodeRecord] | None = None
    used_on: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # node -> resource -> GPUs of other Models and pods
    notes: list[str] = field(default_factory=list)

    def supply(
        self, types: Iterable[GpuType], tolerations: tuple[str, ...]
    ) -> tuple[Mapping[str, int] | None, tuple[GpuType, ...]]:
        """Free GPUs by type, of the types that nodes carry or may come to carry, and those as the nodes have them.

        Nodes whose taints the Model's `tolerations` leave out do not count, which `notes` tell.

        None and `types` where nodes are unknown.
        """
        if self.nodes is None:
            return None, tuple(types)
        fleet = carried(types, self.nodes)
        known = reach({there.type: there for there in supply_of(fleet, self.used_on)}, tolerations)
        self.notes += [f"{told}." for told in known.beyond.values()]
        free = {name: there.free for name, there in known.supply.items() if there.capacity}
        return free, tuple(gpu for gpu in fleet.types if gpu.name in free)


@dataclass(frozen=True, slots=True)
class Measured:
    """What users of a Model offered over the last minutes, from its status; None: not known."""

    requests_per_second: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


def measured(model: Object) -> Measured:
    """Demand that the operator wrote into the status."""
    demand = part(model, "status", "demand", default={})
    return Measured(*(_number(demand.get(name)) for name in ("requestsPerSecond", "inputTokens", "outputTokens")))


def _number(text: Any) -> float | None:
    try:
        return float(text) or None
    except (TypeError, ValueError):
        return None


async def read_cluster(api: KubeClient, namespace: str, name: str) -> Cluster:
    """The Model, the SLO and ConfigMap that it names, GPUTypes, nodes, and what pods take of their GPUs.

    Raises:
        click.ClickException: there is no such Model.
        KubeError: the cluster cannot be read.
    """
    model = await get_model(api, namespace, name)
    found = Cluster([model])
    slo = part(model, "spec", "slo")
    slo = {"name": slo} if isinstance(slo, str) else slo
    for resource, space, wanted in (
        (SLOS, slo.get("namespace") or namespace, slo.get("name")),
        (CONFIG_MAPS, namespace, part(model, "spec", "architecture", "configMapRef", "name")),
    ):
        if wanted:
            try:
                found.documents.append(await api.get(resource, space, wanted))
            except NotFound:
                # Who reads the documents says which is missing, and by which field.
                continue
    found.documents += await list_all(api, GPU_TYPES, None)
    try:
        nodes = [node_record(item) for item in await list_all(api, NODES, None)]
    except Refused as error:
        found.notes.append(f"Nodes may not be listed ({error}): every GPU type counts as there in plenty.")
        return found
    found.nodes = [node for node in nodes if node is not None]
    try:
        await _take(api, found, Key(namespace, name))
    except Refused as error:
        found.notes.append(f"Pods of all namespaces may not be listed ({error}): every GPU counts as free.")
    return found


async def _take(api: KubeClient, found: Cluster, own: Key) -> None:
    """Count the GPUs that pods of others hold: those of the Model itself are free for it."""
    for manifest in await list_all(api, PODS, None):
        pod = pod_record(manifest)
        if pod is None or not pod.node or (isinstance(pod, OwnPod) and Key(pod.key.namespace, pod.model) == own):
            continue
        taken = found.used_on.setdefault(pod.node, {})
        for resource, count in pod.gpus:
            taken[resource] = taken.get(resource, 0) + count
