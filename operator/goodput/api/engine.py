"""The engine: image, arguments and environment, and which of them are Goodput's to set."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from goodput.api.base import ApiModel
from goodput.api.podspec import SecretKeyRef
from goodput.api.rules import ListOf, Rule, cel_string, matches

# Flags that an author may not pass, by the sentence that says what to do instead. vLLM takes `_` for `-`, any unique
# prefix of a flag, `--flag=value` and `--flag.key value`, so all of these spellings are refused.
OWNED_FLAGS: dict[str, tuple[str, ...]] = {
    "the model is set by spec.model, its revision by spec.revision": ("--model", "--revision"),
    "the served name is set by spec.servedName": ("--served-model-name",),
    "tensor and pipeline parallelism are set by spec.parallelism": (
        "--tensor-parallel-size",
        "-tp",
        "--pipeline-parallel-size",
        "-pp",
    ),
    "precision is set by spec.precision.weights and spec.precision.kvCache (a quantised checkpoint needs no flag)": (
        "--quantization",
        "-q",
        "--quantization-config",
        "--kv-cache-dtype",
        "--kv-cache-dtype-skip-layers",
    ),
    "speculative decoding is set by spec.speculative": (
        "--speculative-config",
        "-sc",
        "--spec-method",
        "--spec-model",
        "--spec-tokens",
    ),
    "one replica is one engine on one node: data and context parallelism and multi-node flags cannot be set": (
        "--data-parallel-size",
        "-dp",
        "--data-parallel-size-local",
        "-dpl",
        "--data-parallel-rank",
        "-dpr",
        "--data-parallel-start-rank",
        "--data-parallel-address",
        "--data-parallel-rpc-port",
        "--data-parallel-backend",
        "--data-parallel-external-lb",
        "--data-parallel-hybrid-lb",
        "--data-parallel-multi-port-external-lb",
        "--data-parallel-supervisor-port",
        "--decode-context-parallel-size",
        "-dcp",
        "--prefill-context-parallel-size",
        "-pcp",
        "--api-server-count",
        "-asc",
        "--nnodes",
        "-n",
        "--node-rank",
        "-r",
        "--master-addr",
        "--master-port",
        "--headless",
        "--distributed-executor-backend",
    ),
    "address, port, protocol and keys of the engine are set by Goodput: probes, router and metrics depend on them": (
        "--host",
        "--port",
        "--uds",
        "--root-path",
        "--grpc",
        "--grpc-port",
        "--api-key",
        "--ssl-keyfile",
        "--ssl-certfile",
        "--ssl-ca-certs",
        "--ssl-cert-reqs",
        "--ssl-ciphers",
        "--enable-ssl-refresh",
    ),
    "credentials are set by spec.credentials.secretRef": ("--hf-token",),
    "draining and admission are set by Goodput (see spec.routing.admission)": (
        "--shutdown-timeout",
        "--max-num-queued-reqs",
        "--max-num-queued-tokens",
    ),
    "the length of contexts and batches is sized by Goodput for the GPU and the SLO": (
        "--max-model-len",
        "--max-num-seqs",
        "--max-num-active-seqs",
        "--max-num-batched-tokens",
        "--max-num-scheduled-tokens",
    ),
    "the KV pool is sized by Goodput for the GPU: replicas are computed from it": (
        "--gpu-memory-utilization",
        "--device-memory-utilization",
        "--kv-cache-memory-bytes",
        "--num-gpu-blocks-override",
    ),
    "metrics that goodput is measured by are set by Goodput": (
        "--custom-histogram-buckets",
        "--disable-log-stats",
        "--show-hidden-metrics-for-version",
    ),
    "weights are kept on the GPU: memory is counted so": (
        "--cpu-offload-gb",
        "--cpu-offload-params",
        "--offload-backend",
        "--offload-group-size",
        "--offload-num-in-group",
        "--offload-params",
        "--offload-prefetch-step",
    ),
    "the engine generates text on the GPUs of its pod, and does nothing else": (
        "--runner",
        "--convert",
        "--tokens-only",
        "--mm-encoder-only",
        "--device-ids",
        "--help",
        "-h",
    ),
    "KV transfer and KV offloading cannot be set: Goodput does not account for them yet": (
        "--kv-transfer-config",
        "--kv-offloading-size",
        "--kv-offloading-backend",
    ),
    "paths and configuration files cannot be set: caches are volumes of Goodput, flags go into engine.args": (
        "--download-dir",
        "--config",
    ),
}

# Environment variables that Goodput sets, or that would undo what it sets.
OWNED_ENV: tuple[str, ...] = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_TOKEN",
    "HOME",
    "HUGGING_FACE_HUB_TOKEN",
    "LOGNAME",
    "NVIDIA_VISIBLE_DEVICES",
    "PROMETHEUS_DISABLE_CREATED_SERIES",
    "PROMETHEUS_MULTIPROC_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "USER",
    "VLLM_API_KEY",
    "VLLM_CACHE_ROOT",
    "VLLM_HOST_IP",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
    "VLLM_PORT",
    "VLLM_SERVER_DEV_MODE",
    # Its metrics lack what goodput is measured by.
    "VLLM_USE_RUST_FRONTEND",
)
OWNED_ENV_PREFIXES: tuple[str, ...] = ("GOODPUT_", "KUBERNETES_")


_NUMBER = re.compile(r"-[0-9.]+")


def flag_of(argument: str) -> str:
    """The flag that `argument` spells, as vLLM reads it: `--max_model_len=8k` is `--max-model-len`; '' for a value."""
    if not argument.startswith("-") or len(argument) < 2 or _NUMBER.fullmatch(argument):
        return ""
    return argument.split("=", 1)[0].split(".", 1)[0].replace("_", "-")


def _may_mean(argument: str, flags: tuple[str, ...]) -> bool:
    """Whether vLLM could read `argument` as one of `flags`: itself, a prefix of it, or a short one with its value."""
    flag = flag_of(argument)
    if flag and any(owned.startswith(flag) for owned in flags):
        return True
    if argument.startswith(_one_letter(flags)):
        return True
    return any(re.fullmatch(f"{owned}[0-9]+", argument) is not None for owned in _short(flags))


def _short(flags: tuple[str, ...]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("--")]


def _one_letter(flags: tuple[str, ...]) -> tuple[str, ...]:
    """argparse takes whatever follows a flag of one letter for its value: `-n 4` in one word, `-n+4`."""
    return tuple(flag for flag in flags if len(flag) == 2)


def _free_of(flags: tuple[str, ...], message: str) -> Rule:
    """Arguments contain none of `flags`, in any spelling that vLLM would take for them."""
    names = "[" + ", ".join(cel_string(flag) for flag in flags) + "]"
    spelled = "a.split('=')[0].split('.')[0].replace('_', '-')"
    owned = f"{names}.exists(f, f.startsWith({spelled}))"
    if short := _short(flags):
        owned = f"({owned} || a.matches({cel_string('^(?:' + '|'.join(short) + ')[0-9]+$')}))"
    for letter in _one_letter(flags):
        owned = f"({owned} || a.startsWith({cel_string(letter)}))"
    return Rule(
        cel=f"self.all(a, !a.startsWith('-') || size(a) < 2 || !{owned})",
        message=message,
        holds=lambda args: not any(_may_mean(argument, flags) for argument in args),
    )


_STARTS_WITH_FLAG = Rule(
    cel="size(self) == 0 || self[0].startsWith('-')",
    message="the first argument must be a flag: the model is set by spec.model",
    holds=lambda args: not args or args[0].startswith("-"),
)

_NO_EXPANSION = Rule(
    cel="self.all(a, !a.contains('$('))",
    message=(
        "Kubernetes would put the value of a variable in place of $(NAME): a flag of Goodput's, or a token that the "
        "log of vLLM then shows; write the value itself"
    ),
    holds=lambda args: not any("$(" in argument for argument in args),
)

# Other numbers of two bytes are the author's: some GPUs know no bfloat16.
_FOUR_BYTES = " --dt(?:y|yp|ype)?(?:=| )float(?:32)? "
_TWO_BYTES = Rule(
    cel=f"!(' ' + self.join(' ') + ' ').matches({cel_string(_FOUR_BYTES)})",
    message="numbers of four bytes cannot be set: memory is counted for those of the checkpoint (see spec.precision)",
    holds=lambda args: re.search(_FOUR_BYTES, f" {' '.join(args)} ") is None,
)

_Args = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
    Field(max_length=64),
    ListOf(),
    _STARTS_WITH_FLAG,
    _NO_EXPANSION,
    _TWO_BYTES,
    *(_free_of(flags, message) for message, flags in OWNED_FLAGS.items()),
]

_EnvName = Annotated[
    str,
    Field(min_length=1, max_length=128),
    matches("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable is letters, digits and _"),
    Rule(
        cel=(
            "!(self in ["
            + ", ".join(cel_string(name) for name in OWNED_ENV)
            + "])"
            + "".join(f" && !self.startsWith({cel_string(prefix)})" for prefix in OWNED_ENV_PREFIXES)
        ),
        message="this environment variable is set by Goodput (a token belongs into spec.credentials.secretRef)",
        holds=lambda name: name not in OWNED_ENV and not name.startswith(OWNED_ENV_PREFIXES),
    ),
]


class EnvSource(ApiModel):
    """Where the value of an environment variable comes from."""

    secret_key_ref: SecretKeyRef
    """A key of a Secret in the Model's namespace."""


VALUE_OR_SOURCE = Rule(
    cel="has(self.value) != has(self.valueFrom)",
    message="an environment variable has either value or valueFrom",
    holds=lambda env: (env.value is None) != (env.value_from is None),
)


class EnvVar(ApiModel):
    """One environment variable of the engine."""

    name: _EnvName
    """Name of the variable; the ones that Goodput sets are refused."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value. Unset: it comes from `valueFrom`."""
    value_from: EnvSource | None = None
    """Where its value comes from. Unset: it is `value`."""

    RULES: ClassVar[tuple[Rule, ...]] = (VALUE_OR_SOURCE,)


Image = Annotated[
    str,
    Field(min_length=1, max_length=512),
    matches(
        r"[a-z0-9](?:[-a-zA-Z0-9._/]|:[0-9]+/)*(?::[A-Za-z0-9_][-A-Za-z0-9_.]*)?(?:@sha256:[a-f0-9]{64})?",
        "an image is a name with a tag or digest, such as vllm/vllm-openai:v0.33.0",
    ),
]


class Engine(ApiModel):
    """The vLLM that serves the model. All of it is optional."""

    image: Image | None = None
    """Image of the engine, such as `vllm/vllm-openai:v0.33.0`; the operator's settings may restrict which are allowed.
    Unset: the operator's default, pinned at the first roll-out."""
    args: _Args = ()
    """Further arguments of `vllm serve`, one word each. Flags that Goodput sets are refused. Unset: none."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(max_length=64),
        ListOf("name"),
    ] = ()
    """Further environment variables of the engine. Unset: none."""
    update: Literal["OnChange", "Automatic"] = "OnChange"
    """When pods take up a new default image or rendering of a newer operator: `OnChange` with the next change of the
    Model, `Automatic` by itself, one Model at a time; until then UpdateAvailable says so. Default OnChange."""
