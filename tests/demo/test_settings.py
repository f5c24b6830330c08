"""What `make demo` takes from its environment, and the examples it applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodput_world.demo.objects import ExampleError, read_objects
from goodput_world.demo.settings import EXAMPLES, DemoSettings, SettingsError, read_settings
from goodput_world.replay import Objectives


def test_nothing_set_is_the_ten_minute_demo() -> None:
    """600 s on the embedded world."""
    assert read_settings({}) == DemoSettings()
    assert DemoSettings().seconds == 600.0


def test_everything_can_be_set() -> None:
    """Seconds, seed, cluster, where its parts are, where results go."""
    settings = read_settings(
        {
            "DEMO_SECONDS": "900",
            "DEMO_SEED": "7",
            "DEMO_CLUSTER": "existing",
            "KUBECONFIG": "/k",
            "DEMO_URL": "http://10.0.0.1",
            "DEMO_PROMETHEUS_URL": "http://10.0.0.2:9090",
            "DEMO_DIRECTORY": "/d",
        }
    )

    assert (settings.seconds, settings.seed, settings.existing) == (900.0, 7, True)
    assert (settings.url, settings.prometheus_url) == ("http://10.0.0.1", "http://10.0.0.2:9090")
    assert settings.directory == Path("/d")
    assert (settings.namespace, DemoSettings().namespace) == ("goodput-demo", "default")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"DEMO_SECONDS": "ten"}, "DEMO_SECONDS=ten"),
        ({"DEMO_SECONDS": "5"}, "DEMO_SECONDS=5"),
        ({"DEMO_SECONDS": "nan"}, "DEMO_SECONDS=nan"),
        ({"DEMO_CLUSTER": "kind"}, "DEMO_CLUSTER=kind"),
        ({"DEMO_CLUSTER": "existing"}, "KUBECONFIG"),
    ],
)
def test_a_wrong_variable_is_named(environment: dict[str, str], named: str) -> None:
    """The message says which variable, and its value."""
    with pytest.raises(SettingsError, match=named):
        read_settings(environment)


def test_the_examples_are_what_the_demo_says() -> None:
    """The SLO of the README unchanged, one GPU type, one replica to start with."""
    objects = read_objects(EXAMPLES, "default")

    assert objects.objectives == Objectives(ttft_seconds=0.5, tpot_seconds=0.05)
    assert objects.attainment == 0.95
    assert objects.gpu_type == "l40s"
    assert objects.model.spec.scaling.min_replicas == 1
    assert objects.price_per_gpu_hour is not None


def test_a_shared_cluster_keeps_its_gpu_types() -> None:
    """A GPUType is cluster-scoped: the demo brings none where others have theirs, and knows no price then."""
    objects = read_objects(EXAMPLES, "goodput-demo", with_gpu_type=False)

    assert {document["kind"] for document in objects.documents} == {"SLO", "Model"}
    assert objects.price_per_gpu_hour is None


def test_a_model_that_may_go_anywhere_is_refused(tmp_path: Path) -> None:
    """The demo's nodes have one GPU type; a Model that names none could be placed on another."""
    for name in ("slo-chat.yaml", "gputype-l40s.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    (tmp_path / "model-llama-8b-l40s.yaml").write_text((EXAMPLES / "model-llama-8b.yaml").read_text())

    with pytest.raises(ExampleError, match="gpuTypes"):
        read_objects(tmp_path, "default")
