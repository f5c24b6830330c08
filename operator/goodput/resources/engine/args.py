"""Arguments of `vllm serve` for one replica."""

from __future__ import annotations

import json

from goodput.api.model import PVC_SCHEME
from goodput.domain.intent import Precision
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.resources import names
from goodput.resources.engine.histogram import buckets_argument
from goodput.resources.engine.owned import split_user_args
from goodput.resources.inputs import RenderInput

MODELS_PATH = "/models"
# In-flight streams get this long after SIGTERM; a stream that outlasts it is counted as cut.
SHUTDOWN_TIMEOUT_SECONDS = 300
KV_CACHE_DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}


def pvc_source(model: str) -> tuple[str, str] | None:
    """(claim, path within it) of a `pvc://claim/path` model, None for a hub id."""
    if not model.startswith(PVC_SCHEME):
        return None
    claim, _, path = model.removeprefix(PVC_SCHEME).partition("/")
    return claim, path.strip("/")


def model_argument(model: str) -> str:
    """What vLLM is asked to load: the hub id, or the directory at which a claim is mounted."""
    source = pvc_source(model)
    if source is None:
        return model
    _, path = source
    return f"{MODELS_PATH}/{path}" if path else MODELS_PATH


# Tokens that an n-gram lookup compares: the longest first, single ones never (they match too much).
_LOOKUP_MAX, _LOOKUP_MIN = 5, 2
# Methods that vLLM calls otherwise.
DRAFT_METHODS = {DraftMethod.DRAFT: "draft_model"}


def speculative_config(speculation: Speculation, tokens: int) -> str:
    """Value of `--speculative-config`, as JSON with vLLM's keys."""
    config: dict[str, str | int] = {
        "method": DRAFT_METHODS.get(speculation.method, speculation.method.value),
        "num_speculative_tokens": tokens,
    }
    if speculation.model:
        config["model"] = speculation.model
    if speculation.method is DraftMethod.NGRAM:
        config |= {"prompt_lookup_max": _LOOKUP_MAX, "prompt_lookup_min": _LOOKUP_MIN}
    return json.dumps(config, separators=(",", ":"), sort_keys=True)


def _precision_args(precision: Precision) -> list[str]:
    args = [] if precision.weights is None else ["--quantization", precision.weights]
    if precision.kv_cache is not None:
        args += ["--kv-cache-dtype", KV_CACHE_DTYPES[precision.kv_cache]]
    return args


def engine_args(render: RenderInput) -> list[str]:
    """Everything after `vllm serve`. Goodput's own flags come last: argparse lets the last one win."""
    intent, placement = render.intent, render.placement
    user_args, _ = split_user_args(render.engine.args)
    args = [
        model_argument(intent.model),
        *user_args,
        "--served-model-name",
        intent.served_name,
        "--host",
        "0.0.0.0",
        "--port",
        str(names.ENGINE_PORT),
        "--tensor-parallel-size",
        str(placement.tensor_parallel),
        "--pipeline-parallel-size",
        str(placement.pipeline_parallel),
        "--max-model-len",
        str(placement.max_model_len),
        "--max-num-seqs",
        str(placement.max_num_seqs),
        "--max-num-batched-tokens",
        str(placement.max_num_batched_tokens),
    ]
    args += _precision_args(intent.precision)
    if intent.speculation is not None and placement.speculative_tokens:
        args += ["--speculative-config", speculative_config(intent.speculation, placement.speculative_tokens)]
    if render.revision is not None and pvc_source(intent.model) is None:
        args += ["--revision", render.revision]
    if intent.admission and placement.max_num_queued_requests is not None:
        args += ["--max-num-queued-reqs", str(placement.max_num_queued_requests)]
    if intent.admission and placement.max_num_queued_tokens is not None:
        args += ["--max-num-queued-tokens", str(placement.max_num_queued_tokens)]
    return [
        *args,
        "--shutdown-timeout",
        str(SHUTDOWN_TIMEOUT_SECONDS),
        "--custom-histogram-buckets",
        buckets_argument(intent.objective),
    ]
