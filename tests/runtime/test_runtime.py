"""The process around the loop: settings, logs, metrics, endpoints."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
from click.testing import CliRunner

from goodput.domain.identity import Key
from goodput.domain.plan import Figures
from goodput.domain.usage import Usage
from goodput.runtime import logs, server
from goodput.runtime.logs import JsonFormatter, TextFormatter
from goodput.runtime.metrics import Metrics
from goodput.runtime.settings import Settings
from goodput_controllers.main import main, settings_of

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("allowed", "image", "want"),
    [
        pytest.param((), "anything:1", True, id="no list allows any"),
        pytest.param(("mine.example/vllm/*",), "mine.example/vllm/engine:1", True, id="pattern"),
        pytest.param(("mine.example/vllm/*",), "other.example/vllm/engine:1", False, id="other registry"),
        pytest.param(("mine.example/*",), "vllm/vllm-openai:v0.33.0", True, id="the operator's own default"),
        pytest.param(("vllm/*",), "evil.example/vllm/engine:1", False, id="its name inside another registry"),
        pytest.param(("m.example/vllm:1.*",), f"m.example/vllm:1.2@{DIGEST}", False, id="any content under a fine tag"),
        pytest.param(("m.example/vllm:1.*@sha256:*",), f"m.example/vllm:1.2@{DIGEST}", True, id="digests are meant"),
        pytest.param(("m.example:5000/vllm/*",), f"m.example:5000/vllm/x@{DIGEST}", True, id="a port is no tag"),
        pytest.param(("M.example/*",), "m.example/x:1", False, id="case counts"),
    ],
)
def test_allowed_images(allowed: tuple[str, ...], image: str, want: bool) -> None:
    """Images are allowed by pattern; the default image always is."""
    assert Settings(prometheus_url="", allowed_images=allowed).image_allowed(image) is want


def parsed(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    context = main.make_context("goodput-operator", list(arguments))
    return settings_of(context.params)


def test_settings_from_the_chart_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable that the chart sets is understood."""
    settings = parsed(
        monkeypatch,
        GOODPUT_PROMETHEUS_URL="http://p:9090",
        GOODPUT_DEFAULT_MODE="Advise",
        GOODPUT_ALLOWED_IMAGES="a/*,b/*",
        GOODPUT_NAMESPACES="x,y",
        GOODPUT_JSON_LOGS="true",
        GOODPUT_LISTEN_PORT="9000",
        GOODPUT_MAX_GPUS_PER_NAMESPACE="8",
        GOODPUT_MAX_PRIORITY="*=-5,platform=100",
        GOODPUT_LEASE_NAMESPACE="system",
        GOODPUT_DEFAULT_CREDENTIALS_SECRET="hub",
        GOODPUT_DEFAULT_CREDENTIALS_KEY="token",
        GOODPUT_DEFAULT_IMAGE_PULL_SECRETS="registry,mirror",
    )
    assert settings.prometheus_url == "http://p:9090"
    assert settings.default_mode.value == "Advise"
    assert (settings.allowed_images, settings.namespaces) == (("a/*", "b/*"), ("x", "y"))
    assert (settings.json_logs, settings.listen_port, settings.max_gpus_per_namespace) == (True, 9000, 8)
    assert [settings.most_priority(name) for name in ("platform", "team-a")] == [100, -5]
    assert settings.lease_namespace == "system"
    assert (settings.default_credentials_secret, settings.default_credentials_key) == ("hub", "token")
    assert settings.default_image_pull_secrets == ("registry", "mirror")


def test_settings_from_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags repeat, and --listen is an address with a port."""
    settings = parsed(monkeypatch, "--allowed-image", "a/*", "--allowed-image", "b/*", "--listen", "127.0.0.1:81")
    assert settings.allowed_images == ("a/*", "b/*")
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 81)
    with pytest.raises(click.BadParameter):
        parsed(monkeypatch, "--listen", "nowhere")


def test_labels_of_pod_monitors_from_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, the last of equal keys wins; an empty value is a label too."""
    labels = ("release=old", "example.com/team=", "release=stack")
    settings = parsed(monkeypatch, *(f"--pod-monitor-label={label}" for label in labels))
    assert settings.pod_monitor_labels == (("example.com/team", ""), ("release", "stack"))
    assert parsed(monkeypatch).pod_monitor_labels == ()


@pytest.mark.parametrize("label", ["release", "=x", "a b=c", "-a=b", "a=b/c", "Example/a=b", "a=b=c", "a" * 64 + "=b"])
def test_what_is_no_label_stops_the_start(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every PodMonitor of the fleet, one by one, later."""
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        parsed(monkeypatch, "--pod-monitor-label", label)


def record(**data: Any) -> logging.LogRecord:
    made = logging.LogRecord("goodput", logging.INFO, "f", 1, "scaled %s", ("up",), None)
    made.data = data
    return made


def test_log_lines() -> None:
    """A line is one JSON object with the record's data, or text with name=value."""
    line = json.loads(JsonFormatter().format(record(model="a/b", to=3, message="no")))
    assert (line["message"], line["model"], line["to"]) == ("scaled up", "a/b", 3)
    assert TextFormatter().format(record(to=3)).endswith("scaled up  to=3")


def series(metrics: Metrics) -> str:
    return metrics.render().decode()


def test_figures_come_and_go() -> None:
    """An unknown figure has no series; a Model that is gone has none at all."""
    metrics = Metrics("1")
    metrics.show(Key("a", "m"), Figures(demand_rps=2.5, offered_delta=10.0))
    assert 'goodput_demand_requests_per_second{model="m",namespace="a"} 2.5' in series(metrics)
    assert "goodput_forecast_requests_per_second{" not in series(metrics)
    metrics.show(Key("a", "m"), Figures(demand_rps=None, offered_delta=5.0))
    assert "goodput_demand_requests_per_second{" not in series(metrics)
    assert 'goodput_requests_offered_total{model="m",namespace="a"} 15.0' in series(metrics)
    metrics.forget_others(set())
    assert 'model="m"' not in series(metrics)


def test_rates_of_replica_seconds_over_each_other_are_utilisations() -> None:
    """Of two ticks: MFU is what arithmetic takes over all time, MBU of busy time what bytes take over that of steps."""
    metrics = Metrics("1")
    used = Usage(wall_seconds=30.0, busy_seconds=15.0, compute_seconds=3.0, memory_seconds=9.0)
    for _ in range(2):
        metrics.show(Key("a", "m"), Figures(usage=used))
    for name, seconds in (("", 60.0), ("busy_", 30.0), ("compute_", 6.0), ("memory_", 18.0)):
        assert f'goodput_replica_{name}seconds_total{{model="m",namespace="a"}} {seconds}' in series(metrics)


async def test_endpoints() -> None:
    """Metrics are served; a probe is 200, or 503 with what is missing."""
    problem = "not in sync: pods"
    runner = await server.serve("127.0.0.1", 0, metrics=lambda: b"x 1\n", ready=lambda: problem, live=lambda: "")
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert await answer.text() == "x 1\n"
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, problem)
        async with session.get(f"http://127.0.0.1:{port}/livez") as answer:
            assert answer.status == 200
    await runner.cleanup()


@pytest.mark.parametrize("text", ["\ud800", "line\nbreak", 'quote "', "ünï ☃", "\x00"])
def test_every_json_line_is_json(text: str) -> None:
    """Whatever a record says or carries: one line, one object."""
    made = record(note=text, number=2**70, share=float("nan"))
    made.msg, made.args = "%s", (text,)
    line = JsonFormatter().format(made)
    assert "\n" not in line
    line.encode()
    assert json.loads(line)["message"] == text


@pytest.mark.parametrize("content", ["a: [", "hello", "apiVersion: v1\nkind: Config"])
def test_an_operator_without_a_cluster_says_so_and_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    """Exit code 1 and one line of advice; a wrong flag is exit code 2 and names the flag."""
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.setattr(logs, "configure", lambda **_: None)  # the log of this process is pytest's
    ended = CliRunner().invoke(main, ["--listen", "127.0.0.1:0"], auto_envvar_prefix="GOODPUT")
    assert ended.exit_code == 1, repr(ended.exception)
    assert "no cluster to talk to" in ended.output
    wrong = CliRunner().invoke(main, ["--tick-seconds", "0"])
    assert (wrong.exit_code, "--tick-seconds" in wrong.output) == (2, True)
