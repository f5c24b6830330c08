"""Volumes of an engine pod, and the environment that points libraries at them: the root file system is read-only."""

from __future__ import annotations

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
RESERVED_VOLUMES = frozenset({"cache", "tmp", "shm", "models"})
RESERVED_PATHS = (CACHE_PATH, "/tmp", "/dev", MODELS_PATH, "/proc", "/sys", "/etc", "/usr", "/var/run/secrets")


def volumes(model: str, gpus: int) -> list[KubeObject]:
    """Volumes that every engine pod has; a `pvc://` model adds its claim, read-only."""
    result: list[KubeObject] = [
        {"name": "cache", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": f"{gpus * SHARED_MEMORY_BYTES_PER_GPU // 2**30}Gi"},
        },
    ]
    source = pvc_source(model)
    if source is not None:
        result.append({"name": "models", "persistentVolumeClaim": {"claimName": source[0], "readOnly": True}})
    return result


def volume_mounts(model: str) -> list[KubeObject]:
    """Where `volumes` appear in the container."""
    result: list[KubeObject] = [
        {"name": "cache", "mountPath": CACHE_PATH},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if pvc_source(model) is not None:
        result.append({"name": "models", "mountPath": MODELS_PATH, "readOnly": True})
    return result


def path_is_reserved(path: str) -> bool:
    """Whether a user's mount at `path` would hide or be hidden by one of ours, or by the system's."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or not parts or ".." in parts:
        return True
    clean = "/" + "/".join(parts)
    return any(clean == reserved or clean.startswith(reserved + "/") for reserved in RESERVED_PATHS)
