"""Volumes of an engine pod, and the environment that points libraries at them: the root file system is read-only."""

from __future__ import annotations

from goodput.api.template import OWNED_MOUNTS, OWNED_VOLUMES
from goodput.resources.engine.args import MODELS_PATH, pvc_source
from goodput.resources.inputs import KubeObject

CACHE_PATH = "/cache"
# NCCL and the message queue between vLLM's processes live in shared memory; Docker's 64 MiB break tensor parallelism.
SHARED_MEMORY_BYTES_PER_GPU = 2 * 2**30

CACHE_ENV = {
    "HOME": CACHE_PATH,
    "HF_HOME": f"{CACHE_PATH}/huggingface",
    "VLLM_CACHE_ROOT": f"{CACHE_PATH}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_PATH}/torchinductor",
    "TRITON_CACHE_DIR": f"{CACHE_PATH}/triton",
}
_CACHE, _TMP, _SHM, _MODELS = OWNED_VOLUMES


def volumes(model: str, gpus: int) -> list[KubeObject]:
    """Volumes that every engine pod has; a `pvc://` model adds its claim, read-only."""
    result: list[KubeObject] = [
        {"name": _CACHE, "emptyDir": {}},
        {"name": _TMP, "emptyDir": {}},
        {
            "name": _SHM,
            "emptyDir": {"medium": "Memory", "sizeLimit": f"{gpus * SHARED_MEMORY_BYTES_PER_GPU // 2**30}Gi"},
        },
    ]
    source = pvc_source(model)
    if source is not None:
        result.append({"name": _MODELS, "persistentVolumeClaim": {"claimName": source[0], "readOnly": True}})
    return result


def volume_mounts(model: str) -> list[KubeObject]:
    """Where `volumes` appear in the container."""
    result: list[KubeObject] = [
        {"name": _CACHE, "mountPath": CACHE_PATH},
        {"name": _TMP, "mountPath": "/tmp"},
        {"name": _SHM, "mountPath": "/dev/shm"},
    ]
    if pvc_source(model) is not None:
        result.append({"name": _MODELS, "mountPath": MODELS_PATH, "readOnly": True})
    return result


def path_is_reserved(path: str) -> bool:
    """Whether a user's mount at `path` would hide or be hidden by one of ours, or by the system's."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or not parts or ".." in parts:
        return True
    clean = "/" + "/".join(parts)
    return any(clean == reserved or clean.startswith(reserved + "/") for reserved in OWNED_MOUNTS)
