"""Argo CD and its like beside the operator: what they apply again is the same, and nobody takes a field of theirs."""

from __future__ import annotations

import json

from goodput_world.cluster import REPOSITORY, Cluster

FILES = ("slo-chat", "model-llama-8b", "model-tuned", "model-private", "model-pvc")
MANAGER = "argocd-controller"


async def test_examples_applied_again_are_no_change_and_no_conflict(cluster: Cluster, namespace: str) -> None:
    """A sync after the operator wrote status: no difference, no conflict, generation and owners as they were."""
    paths = [f"-f={REPOSITORY / 'examples' / name}.yaml" for name in FILES]
    sync = ["apply", "--server-side", f"--field-manager={MANAGER}", "-n", namespace, *paths]
    await cluster.kubectl(*sync)

    async def all_told() -> bool:
        models = await cluster.list_objects("models.goodput.dev", namespace=namespace)
        return len(models) == len(FILES) - 1 and all((item.get("status") or {}).get("conditions") for item in models)

    await cluster.wait_for(all_told, what="conditions of all Models")
    # Exit code 0: nothing differs. Whatever differs raises with the difference.
    await cluster.kubectl("diff", "--server-side", f"--field-manager={MANAGER}", "-n", namespace, *paths)
    await cluster.kubectl(*sync)
    for plural in ("models.goodput.dev", "slos.goodput.dev"):
        found = await cluster.kubectl("get", plural, "-n", namespace, "--show-managed-fields", "-o", "json")
        for item in json.loads(found)["items"]:
            metadata = item["metadata"]
            assert metadata["generation"] == 1, f"{plural} {metadata['name']} was changed"
            assert not metadata.get("finalizers"), metadata
            assert not metadata.get("annotations"), metadata
            others = [
                entry["manager"]
                for entry in metadata["managedFields"]
                if entry["manager"] != MANAGER and entry.get("subresource") != "status"
            ]
            assert not others, f"{plural} {metadata['name']}: {others} own fields beside status"


async def test_kubectl_tells_fields_and_columns(cluster: Cluster, namespace: str) -> None:
    """`kubectl explain` has a text for every field of the spec, `kubectl get` the columns that people look for."""
    told = await cluster.kubectl("explain", "models.goodput.dev.spec", "--recursive=false")
    for field in ("scaling", "slo", "gpuTypes", "engine", "template", "routing", "paused"):
        assert field in told, told
    assert "<no description>" not in told
    await cluster.kubectl("apply", "-n", namespace, "-f", str(REPOSITORY / "examples" / "model-llama-8b.yaml"))
    header = (await cluster.kubectl("get", "mdl", "-n", namespace)).splitlines()[0].split()
    assert {"NAME", "SLO", "POOLS", "REPLICAS", "GOODPUT", "ATTAINMENT", "COST/H", "READY", "AGE"} <= set(header), (
        header
    )
