"""Which arguments and variables of vLLM an author may set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goodput.api.engine import OWNED_ENV, OWNED_ENV_PREFIXES, OWNED_FLAGS, Engine, flag_of
from goodput.api.template import (
    OWNED_DOMAINS,
    OWNED_KEYS,
    OWNED_MOUNTS,
    OWNED_VOLUME_PREFIX,
    OWNED_VOLUMES,
    PodTemplate,
    as_kubernetes,
)
from goodput.resources.engine import usertemplate
from goodput.resources.engine.owned import split_user_args

_FLAGS_FILE = Path(__file__).resolve().parents[2] / "e2e" / "goodput_world" / "engine" / "flags.tsv"
_ROWS = [line.split("\t") for line in _FLAGS_FILE.read_text().splitlines()[1:] if line]
# Name and aliases of every flag.
_REAL_NAMES = [(row[0], *filter(None, row[1].split(","))) for row in _ROWS]
_REAL_FLAGS = [flag for names in _REAL_NAMES for flag in names if flag.startswith("--")]
_ALL_OWNED = [flag for flags in OWNED_FLAGS.values() for flag in flags]


def _accepts(*args: str) -> bool:
    try:
        Engine.model_validate({"args": list(args)})
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("flag", _ALL_OWNED)
def test_an_owned_flag_is_refused_in_every_spelling_of_vllm(flag: str) -> None:
    """Plain, with =, with underscores, abbreviated and dotted."""
    underscored = flag[:2] + flag[2:].replace("-", "_")
    abbreviated = flag[:-1] if len(flag) > 2 else flag
    for spelling in (flag, f"{flag}=1", underscored, abbreviated, f"{flag}.key=1"):
        assert not _accepts("--enforce-eager", spelling, "1"), spelling


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (("--quantization", "fp8"), "spec.precision.weights"),
        (("-qfp8",), "spec.precision.weights"),
        (("--kv-cache-dtype", "fp8"), "spec.precision.kvCache"),
        (("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'), "spec.speculative"),
        (("-sc.method", "ngram"), "spec.speculative"),
        (("--spec-tokens=3",), "spec.speculative"),
        (("--dtype", "float32"), "spec.precision"),
        (("--dtype=float",), "spec.precision"),
        (("--seed", "1", "--dty", "float32"), "spec.precision"),
    ],
)
def test_what_has_a_field_of_its_own_says_which(args: tuple[str, ...], field: str) -> None:
    """Memory and time are sized for it, so that a flag would make both wrong."""
    with pytest.raises(ValueError, match=field):
        Engine.model_validate({"args": list(args)})


@pytest.mark.parametrize("flag", ["-n2", "-r0", "-tp4", "-pp2", "-dp8", "-n 4", "-n+4", "-r 1"])
def test_a_short_flag_with_its_value_glued_on_is_refused(flag: str) -> None:
    """argparse takes -n2 for -n 2."""
    assert not _accepts(flag)


@pytest.mark.parametrize("flag", ["-n2", "-n 4", "-r+1", "--port=1", "--tensor_par"])
def test_what_the_schema_refuses_rendering_drops(flag: str) -> None:
    """An object from before the schema knew better starts no engine with flags of ours."""
    assert split_user_args(["--enforce-eager", flag, "1"]) == (("--enforce-eager",), (flag, "1"))


@pytest.mark.parametrize("args", [("--$(FLAG)",), ("--chat-template", "$(HF_TOKEN)"), ("--seed", "1", "$$(FLAG)")])
def test_nothing_is_expanded_in_arguments(args: tuple[str, ...]) -> None:
    """$(NAME) would become a flag of ours, or a token in vLLM's log: refused, and inert wherever it came from."""
    assert not _accepts(*args)
    kept, _ = split_user_args(args)
    assert [_expanded(token) for token in kept] == list(args), "the kubelet gives vLLM what was written"


def _expanded(text: str) -> str:
    """As Kubernetes does it: $$ is $, $(NAME) the value of a variable."""
    return re.sub(r"\$\$|\$\([^)]*\)", lambda found: "$" if found[0] == "$$" else "SECRET", text)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--enforce-eager",),
        ("--kv-cache-metrics",),
        ("--model-impl", "auto"),
        ("--config-format", "hf"),
        ("--per-request-spec-decode-metrics", "summary"),
        ("--seed", "-1"),
        ("-O3",),
        ("--limit-mm-per-prompt.image", "2"),
        ("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ("--tokenizer-revision", "main"),
        ("--dtype=bfloat16",),
        ("--dtype", "half"),
        ("--mamba-cache-dtype", "float32"),
    ],
)
def test_other_flags_of_vllm_are_the_authors_own(args: tuple[str, ...]) -> None:
    """Also those that begin like an owned one, and values that begin with a minus."""
    assert _accepts(*args)


def test_a_value_before_the_first_flag_is_refused() -> None:
    """vLLM would read it as the model."""
    assert not _accepts("meta-llama/Llama-3.1-70B")


@pytest.mark.parametrize(
    ("token", "flag"),
    [
        ("--kv_cache_dtype=fp8", "--kv-cache-dtype"),
        ("--limit-mm-per-prompt.image", "--limit-mm-per-prompt"),
        ("-tp", "-tp"),
        ("--enforce-eager", "--enforce-eager"),
        ("-1", ""),
        ("-0.5", ""),
        ("-", ""),
        ("auto", ""),
    ],
)
def test_flags_are_told_from_values_as_vllm_reads_them(token: str, flag: str) -> None:
    """Underscores, a value after =, a dotted key; a number is a value."""
    assert flag_of(token) == flag


@pytest.mark.parametrize("flag", _REAL_FLAGS)
def test_every_real_flag_is_refused_or_reaches_the_engine(flag: str) -> None:
    """Nothing that an author writes is ignored in silence, and no flag is refused for looking like an owned one."""
    kept, _ = split_user_args([flag])
    assert _accepts(flag) == (kept == (flag,)) == (flag not in _ALL_OWNED)


def test_an_owned_flag_is_owned_by_all_its_names() -> None:
    """An alias is the same flag; only the negative of a switch says something else."""
    for names in _REAL_NAMES:
        said = [name for name in names if not name.startswith(("--no-", "--disable-"))]
        assert len({name in _ALL_OWNED for name in said}) <= 1, names


def test_owned_flags_exist() -> None:
    """Each is a flag of this version of vLLM; some short ones are aliases that its list does not name."""
    assert not [flag for flag in _ALL_OWNED if flag.startswith("--") and flag not in {*_REAL_FLAGS, "--help"}]


@pytest.mark.parametrize("name", [*OWNED_ENV, *(f"{prefix}X" for prefix in OWNED_ENV_PREFIXES)])
def test_owned_variables_are_refused(name: str) -> None:
    """With a hint where a token belongs."""
    with pytest.raises(ValueError, match="set by Goodput"):
        Engine.model_validate({"env": [{"name": name, "value": "x"}]})


@pytest.mark.parametrize("name", [*OWNED_VOLUMES, f"{OWNED_VOLUME_PREFIX}x"])
def test_owned_volumes_are_refused(name: str) -> None:
    """So that none of ours is hidden."""
    with pytest.raises(ValueError, match="are Goodput's"):
        PodTemplate.model_validate({"volumes": [{"name": name, "emptyDir": {}}]})


@pytest.mark.parametrize("path", [*OWNED_MOUNTS, *(f"{path}/x" for path in OWNED_MOUNTS)])
def test_owned_paths_are_refused(path: str) -> None:
    """So that nothing of ours or of the system is hidden."""
    with pytest.raises(ValueError, match="Goodput's or the system's"):
        PodTemplate.model_validate(
            {"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": path}]}
        )


@pytest.mark.parametrize(
    "key", [*(f"{sub}{domain}/x" for domain in OWNED_DOMAINS for sub in ("", "a.b.")), *OWNED_KEYS]
)
def test_owned_keys_are_refused(key: str) -> None:
    """With all their subdomains."""
    for field in ("labels", "annotations"):
        with pytest.raises(ValueError, match="belong to Goodput or Kubernetes"):
            PodTemplate.model_validate({field: {key: "x"}})


@pytest.mark.parametrize("key", ["team", "example.com/team", "sidecar.istio.io/inject", "notkubernetes.io/x"])
def test_other_keys_are_the_authors_own(key: str) -> None:
    """And rendering keeps them."""
    template = PodTemplate.model_validate({"labels": {key: "x"}})
    assert usertemplate.user_metadata(as_kubernetes(template), "labels") == {key: "x"}


def test_a_template_is_rendered_as_its_author_wrote_it() -> None:
    """No default of the schema is added on the way."""
    written = {
        "labels": {"team": "x"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "a", "emptyDir": {}}],
        "volumeMounts": [{"name": "a", "mountPath": "/data"}],
    }
    assert as_kubernetes(PodTemplate.model_validate(written)) == written
    assert as_kubernetes(None) == {}


@pytest.mark.parametrize(
    "args",
    [
        ("--cpu-offload-gb", "10"),
        ("--offload-backend", "uva"),
        ("--runner", "pooling"),
        ("--convert=embed",),
        ("--tokens-only",),
        ("--device-ids", "5"),
        ("--help",),
        ("-h",),
    ],
)
def test_what_would_serve_something_else_or_elsewhere_is_refused(args: tuple[str, ...]) -> None:
    """Memory is counted for weights on the pod's own GPUs, and the router sends completions."""
    assert not _accepts(*args)
