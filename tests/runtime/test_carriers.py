"""Which nodes carry which type, and by which labels pods ask for it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.adapters.records import NodeRecord, node_record
from goodput.domain.intent import GpuType
from goodput.perfmodel import built_in_gpu_types
from goodput.perfmodel.gpus import gpu_type
from goodput.runtime.carriers import Carried, carried
from goodput.runtime.supply import supply_of

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
GKE = "cloud.google.com/gke-accelerator"
KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
H100 = "NVIDIA-H100-80GB-HBM3"


def _node(name: str, labels: dict[str, str], resources: dict[str, int] | None = None, **spec: Any) -> NodeRecord:
    record = node_record(
        {
            "metadata": {"name": name, "resourceVersion": "1", "labels": labels},
            "spec": spec,
            "status": {
                "allocatable": {key: str(count) for key, count in (resources or {GPU: 8}).items()},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    assert record is not None
    return record


def _found(*nodes: NodeRecord, types: tuple[GpuType, ...] = built_in_gpu_types()) -> Carried:
    return carried(types, nodes)


def _on(found: Carried) -> dict[str, int]:
    return {item.type: item.installed for item in supply_of(found, {}) if item.nodes}


def _type(found: Carried, name: str) -> GpuType:
    return next(gpu for gpu in found.types if gpu.name == name)


@pytest.mark.parametrize(
    ("labels", "resources", "want"),
    [
        pytest.param({PRODUCT: H100}, {GPU: 8}, "h100-sxm", id="GFD"),
        pytest.param({GKE: "nvidia-h100-mega-80gb"}, {GPU: 8}, "h100-sxm", id="GKE"),
        pytest.param({KARPENTER: "h100"}, {GPU: 8}, "h100-sxm", id="Karpenter"),
        pytest.param(
            {KARPENTER: "a100", "karpenter.k8s.aws/instance-gpu-memory": "40960"},
            {GPU: 8},
            "a100-40g-sxm",
            id="Karpenter, two sizes of one name: 40 GB",
        ),
        pytest.param(
            {KARPENTER: "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"},
            {GPU: 8},
            "a100-80g-sxm",
            id="Karpenter, two sizes of one name: 80 GB",
        ),
        pytest.param({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/gpu": 8}, "mi300x", id="AMD"),
        pytest.param({"amd.com/gpu.device-id": "74a1"}, {"amd.com/gpu": 8}, "mi300x", id="AMD by device id"),
        pytest.param(
            {"node.kubernetes.io/instance-type": "trn2.48xlarge"},
            {"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 128},
            "trainium2",
            id="Neuron by instance type",
        ),
        pytest.param(
            {"karpenter.k8s.aws/instance-accelerator-name": "inferentia2"},
            {"aws.amazon.com/neuron": 12},
            "inferentia2",
            id="Neuron by Karpenter",
        ),
        pytest.param(
            {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, {"google.com/tpu": 8}, "tpu-v6e", id="TPU"
        ),
        pytest.param({PRODUCT: H100}, {"nvidia.com/mig-1g.10gb": 56}, "h100-sxm-1g.10gb", id="MIG, strategy mixed"),
        pytest.param({PRODUCT: f"{H100}-MIG-3g.40gb"}, {GPU: 16}, "h100-sxm-3g.40gb", id="MIG, strategy single"),
        pytest.param(
            {GKE: "nvidia-tesla-a100", "cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
            {GPU: 7},
            "a100-40g-sxm-1g.5gb",
            id="MIG on GKE",
        ),
    ],
)
def test_a_node_carries_one_type_by_any_labelling(labels, resources, want):
    """Its devices are counted, of that type and of no other, and pods ask for what the node really has."""
    node = _node("one", labels, resources)
    found = _found(node)
    gpu = _type(found, want)
    assert _on(found) == {want: resources[gpu.resource_name]}
    assert dict(gpu.node_selector).items() <= node.labels.items()
    assert found.strangers == ""


def test_mixed_mig_counts_profiles_and_whole_cards_of_one_node_apart():
    """Four whole cards, and the others as 14 small and four half instances."""
    resources = {GPU: 4, "nvidia.com/mig-1g.10gb": 14, "nvidia.com/mig-3g.40gb": 4}
    found = _found(_node("one", {PRODUCT: H100}, resources))
    assert _on(found) == {"h100-sxm": 4, "h100-sxm-1g.10gb": 14, "h100-sxm-3g.40gb": 4}


@pytest.mark.parametrize(
    ("labels", "resources"),
    [
        pytest.param({PRODUCT: f"{H100}-SHARED", "nvidia.com/gpu.replicas": "4"}, {GPU: 32}, id="GFD, time slicing"),
        pytest.param({PRODUCT: f"{H100}-SHARED", KARPENTER: "h100"}, {GPU: 32}, id="GFD and Karpenter"),
        pytest.param({PRODUCT: H100, "nvidia.com/gpu.sharing-strategy": "mps"}, {GPU: 32}, id="MPS"),
        pytest.param({GKE: "nvidia-l4", "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, None, id="GKE"),
        pytest.param({PRODUCT: H100, "nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu.shared": 32}, id="renamed"),
        pytest.param(
            {PRODUCT: H100, "nvidia.com/mig-1g.10gb.product": f"{H100}-MIG-1g.10gb-SHARED"},
            {"nvidia.com/mig-1g.10gb": 28},
            id="a MIG instance shared again",
        ),
    ],
)
def test_gpus_that_pods_share_in_turns_are_refused(labels, resources):
    """They isolate nothing, so no objective holds on them: none is counted, and it is said."""
    found = _found(_node("one", labels, resources))
    assert _on(found) == {}
    assert "time slicing isolates nothing" in found.strangers


def test_labels_that_also_fit_shared_nodes_are_not_asked_for():
    """A pod that asks for Karpenter's h100 could land on the sliced node: it asks for GFD's product."""
    whole = _node("whole", {PRODUCT: H100, KARPENTER: "h100"})
    sliced = _node("sliced", {PRODUCT: f"{H100}-SHARED", KARPENTER: "h100"}, {GPU: 32})
    assert dict(_type(_found(whole), "h100-sxm").node_selector) == {KARPENTER: "h100"}
    found = _found(whole, sliced)
    assert dict(_type(found, "h100-sxm").node_selector) == {PRODUCT: H100}
    assert _on(found) == {"h100-sxm": 8}
    assert found.strangers.startswith("1 node has nvidia.com/gpu (nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3-SHARED)")


def test_whole_cards_are_not_asked_for_by_labels_that_partitioned_nodes_have_too():
    """GKE names the card on both; without a label of its own for whole cards they are not used, and why is known."""
    card, slices = _node("a", {GKE: "nvidia-tesla-a100"}), _node("b", {GKE: "nvidia-tesla-a100"} | PARTITION, {GPU: 7})
    found = _found(card, slices)
    assert _on(found) == {"a100-40g-sxm-1g.5gb": 7}
    assert found.notes["a100-40g-sxm"] == "nodes that its labels fit are partitioned"


PARTITION = {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}


def test_the_labels_on_most_gpus_win_and_others_are_told():
    """Two labellings side by side: pods ask for the larger part."""
    nodes = [_node(f"gke-{index}", {GKE: "nvidia-l4"}, {GPU: 1}) for index in range(3)]
    nodes.append(_node("own", {PRODUCT: "NVIDIA-L4"}, {GPU: 2}))
    found = _found(*nodes)
    assert dict(_type(found, "l4").node_selector) == {GKE: "nvidia-l4"}
    assert _on(found) == {"l4": 3}
    assert (
        "1 more nodes carry it by other labels; pods ask for cloud.google.com/gke-accelerator=nvidia-l4"
        in (found.notes["l4"])
    )


def test_a_type_without_nodes_is_asked_for_by_what_the_provisioner_knows():
    """No H100 is there yet; Karpenter makes a node for its own label, not for one that GFD would set afterwards."""
    cpu = _node("cpu", {"karpenter.k8s.aws/instance-category": "m"}, {"cpu": 8})
    limited = tuple(replace(gpu, limit=16) if gpu.name == "h100-sxm" else gpu for gpu in built_in_gpu_types())
    assert dict(_type(_found(cpu, types=limited), "h100-sxm").node_selector) == {KARPENTER: "h100"}
    assert dict(_type(_found(types=limited), "h100-sxm").node_selector) == {PRODUCT: H100}


def test_types_that_nobody_knows_are_told_with_their_labels():
    """Why a Model finds no GPU although nodes have some."""
    nodes = [
        _node("a", {PRODUCT: "NVIDIA-H20"}),
        _node("b", {PRODUCT: "NVIDIA-H20"}),
        _node("c", {}),
        _node("d", {}, {"rdma/hca": 4}),
    ]
    found = _found(*nodes)
    assert _on(found) == {}
    assert found.strangers == (
        "2 nodes have nvidia.com/gpu (nvidia.com/gpu.product=NVIDIA-H20), which no GPU type names: write a GPUType for "
        "them; 1 node has nvidia.com/gpu and no label that tells their kind, which no GPU type names: write a GPUType "
        "for them"
    )


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({"karpenter.sh/capacity-type": "spot"}, 6.326),
        ({"cloud.google.com/gke-spot": "true"}, 6.326),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, 6.326),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, 6.326),
        ({"karpenter.sh/capacity-type": "on-demand"}, 6.88),
        ({}, 6.88),
    ],
)
def test_spot_nodes_cost_the_spot_price(labels, want):
    """By the labels of whoever made the nodes."""
    assert _type(_found(_node("one", {PRODUCT: H100, **labels})), "h100-sxm").price_per_hour == want


def test_one_node_on_demand_makes_a_type_cost_its_full_price():
    """A pod may go to either; a bill that is lower than told is the better surprise."""
    spot = _node("spot", {PRODUCT: H100, "karpenter.sh/capacity-type": "spot"})
    found = _found(spot, _node("kept", {PRODUCT: H100}))
    assert _type(found, "h100-sxm").price_per_hour == 6.88


def test_memory_is_checked_against_the_nodes_label():
    """An engine that plans with more than there is does not start: the smaller figure counts, and it is said."""
    label = {"nvidia.com/gpu.memory": "40960"}
    found = _found(_node("one", {PRODUCT: H100, **label}), _node("two", {PRODUCT: H100}))
    assert _type(found, "h100-sxm").memory_bytes == 40960 * 2**20
    assert "says 40960 MiB, less than 81101 MiB" in found.notes["h100-sxm"]
    usual = _found(_node("one", {PRODUCT: H100, "nvidia.com/gpu.memory": "81559"}))
    base = gpu_type("h100-sxm")
    assert base is not None
    assert _type(usual, "h100-sxm").memory_bytes == base.memory_bytes
    assert usual.notes == {}


_LABELS = st.fixed_dictionaries(
    {},
    optional={
        PRODUCT: st.sampled_from([H100, f"{H100}-SHARED", f"{H100}-MIG-1g.10gb", "NVIDIA-L4", "NVIDIA-H20"]),
        GKE: st.sampled_from(["nvidia-l4", "nvidia-h100-80gb"]),
        KARPENTER: st.sampled_from(["h100", "l4", "a100"]),
        "nvidia.com/gpu.replicas": st.sampled_from(["1", "4", "many", ""]),
        "nvidia.com/gpu.memory": st.sampled_from(["81559", "0", "-1", "x"]),
        "cloud.google.com/gke-gpu-partition-size": st.just("1g.10gb"),
        "karpenter.sh/capacity-type": st.sampled_from(["spot", "on-demand"]),
    },
)
SOME = tuple(gpu for gpu in built_in_gpu_types() if gpu.name.startswith(("h100-sxm", "l4", "a100-40g")))
_RESOURCES = st.dictionaries(
    st.sampled_from([GPU, "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "cpu"]), st.integers(0, 8), min_size=1
)


@given(st.lists(st.tuples(_LABELS, _RESOURCES), max_size=6), st.integers())
def test_whatever_nodes_say_pods_only_go_where_they_may(nodes, seed):
    """Their order does not matter; what is counted has the labels asked for; none of those fits a shared node."""
    records = [_node(f"n{index}", labels, resources) for index, (labels, resources) in enumerate(nodes)]
    found = _found(*records, types=SOME)
    shuffled = records[:]
    random.Random(seed).shuffle(shuffled)
    assert _found(*shuffled, types=SOME) == found
    for gpu in found.types:
        fits = {
            node.name
            for node in records
            if gpu.node_selector
            and dict(gpu.node_selector).items() <= node.labels.items()
            and dict(node.gpus).get(gpu.resource_name)
        }
        there = {node.name for node in found.nodes[gpu.name]}
        assert there in (fits, set())
        for node in found.nodes[gpu.name]:
            assert not node.labels.get(PRODUCT, "").endswith("-SHARED")
            assert node.labels.get("nvidia.com/gpu.replicas") != "4" or gpu.resource_name != GPU
