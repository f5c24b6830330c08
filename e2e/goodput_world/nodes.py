"""The machines of a world: nodes with GPUs and the labels that NVIDIA's feature discovery would give them."""

from __future__ import annotations

from dataclasses import dataclass

from goodput_world.agent.config import NodeConfig


@dataclass(frozen=True, slots=True)
class _Product:
    """What feature discovery calls a GPU, and the memory in MiB that its driver reports."""

    name: str
    memory_mebibytes: int


_PRODUCTS = {
    "l40s": _Product("NVIDIA-L40S", 46_068),
    "a100-80g-sxm": _Product("NVIDIA-A100-SXM4-80GB", 81_920),
    "h100-sxm": _Product("NVIDIA-H100-80GB-HBM3", 81_559),
    "h200-sxm": _Product("NVIDIA-H200", 143_771),
}


def gpu_node(name: str, gpu_type: str, gpus: int = 8, *, zone: str = "zone-a") -> NodeConfig:
    """A node of `gpus` GPUs of a catalogue type. Raises KeyError for a type whose labels are not known here."""
    product = _PRODUCTS[gpu_type]
    return NodeConfig(
        name=name,
        gpus=gpus,
        gpu_type=gpu_type,
        labels={
            **_common_labels(name, zone),
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product.name,
            "nvidia.com/gpu.memory": str(product.memory_mebibytes),
            "nvidia.com/gpu.count": str(gpus),
        },
    )


def cpu_node(name: str, *, zone: str = "zone-a") -> NodeConfig:
    """A node without GPUs, for routers, the operator and Prometheus."""
    return NodeConfig(name=name, labels=_common_labels(name, zone), memory="64Gi", cpu="32")


def _common_labels(name: str, zone: str) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
    }


DEFAULT_NODES = (
    cpu_node("cpu-0"),
    cpu_node("cpu-1", zone="zone-b"),
    gpu_node("l40s-0", "l40s"),
    gpu_node("l40s-1", "l40s", zone="zone-b"),
)
"""Two nodes of eight L40S, and two without GPUs."""
