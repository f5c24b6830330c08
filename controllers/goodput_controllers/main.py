"""`goodput-operator`: reads settings from flags and GOODPUT_* variables, and runs the operator."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

import click
from kubernetes.config import ConfigException

from goodput.adapters.kube_connection import own_namespace
from goodput.domain.intent import ScalingMode
from goodput.runtime import logs
from goodput.runtime.settings import (
    DEFAULT_CREDENTIALS_KEY,
    DEFAULT_ENGINE_IMAGE,
    DEFAULT_ROUTER_IMAGE,
    Settings,
)
from goodput_controllers.process import run_operator

_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}")
_LABEL_VALUE = re.compile(rf"({_LABEL_NAME})?")
_NAMESPACE = re.compile(r"[*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_INTEGER = re.compile(r"-?[0-9]{1,4}")


def _listed(values: tuple[str, ...]) -> tuple[str, ...]:
    """Repeated flags, or one variable with commas."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _peers(text: str) -> tuple[Mapping[str, Any], ...]:
    """Raises click.BadParameter for anything but a JSON list of objects."""
    try:
        peers = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--metrics-from") from error
    if not isinstance(peers, list) or not all(isinstance(peer, dict) and peer for peer in peers):
        raise click.BadParameter(f"{text} is not a list of NetworkPolicyPeers", param_hint="--metrics-from")
    return tuple(peers)


def _labels(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Raises click.BadParameter for what the API server would refuse with every PodMonitor."""
    labels: dict[str, str] = {}
    for text in _listed(given):
        key, _, value = text.partition("=")
        if "=" not in text or not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise click.BadParameter(f"{text} is not KEY=VALUE of a label", param_hint="--pod-monitor-label")
        labels[key] = value
    return tuple(sorted(labels.items()))


def _priorities(given: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for text in _listed(given):
        namespace, _, value = text.rpartition("=")
        if not _NAMESPACE.fullmatch(namespace) or not _INTEGER.fullmatch(value):
            raise click.BadParameter(f"{text} is not NAMESPACE=INTEGER", param_hint="--max-priority")
        found[namespace] = int(value)
    return tuple(sorted(found.items()))


@click.command(context_settings={"auto_envvar_prefix": "GOODPUT", "max_content_width": 120, "show_default": True})
@click.version_option(package_name="goodput-operator")
@click.option("--prometheus-url", default="http://prometheus-operated.monitoring.svc:9090", help="Where Prometheus is.")
@click.option("--prometheus-token-file", default="", help="File with a bearer token for Prometheus.")
@click.option("--prometheus-ca-file", default="", help="CA certificate of Prometheus.")
@click.option("--tick-seconds", type=click.FloatRange(1.0, 300.0), default=10.0, help="Time between two decisions.")
@click.option(
    "--scrape-seconds", type=click.FloatRange(1.0, 300.0), default=15.0, help="How often Prometheus scrapes a pod."
)
@click.option(
    "--mode",
    "--default-mode",
    "default_mode",
    type=click.Choice([mode.value for mode in ScalingMode]),
    default="Auto",
    envvar=["GOODPUT_DEFAULT_MODE", "GOODPUT_MODE"],
    help="Mode of Models that set none.",
)
@click.option("--engine-image", default=DEFAULT_ENGINE_IMAGE, help="Image of engines that name none.")
@click.option("--router-image", default=DEFAULT_ROUTER_IMAGE, help="Image of routers.")
@click.option("--router-replicas", type=click.IntRange(1, 100), default=2, help="Router pods of each Model.")
@click.option(
    "--default-credentials-secret",
    default="",
    help="Secret with the Hugging Face token of Models that name none, in their namespace. Unset: none.",
)
@click.option("--default-credentials-key", default=DEFAULT_CREDENTIALS_KEY, help="Key of the token in that Secret.")
@click.option(
    "--default-image-pull-secret",
    "default_image_pull_secrets",
    multiple=True,
    envvar="GOODPUT_DEFAULT_IMAGE_PULL_SECRETS",
    help="Secret to pull images with, for Models that name none, in their namespace; repeatable.",
)
@click.option(
    "--startup-timeout-seconds",
    type=click.IntRange(60, 86_400),
    default=1800,
    help="How long an engine may take from start to its first answer.",
)
@click.option(
    "--allowed-image",
    "allowed_images",
    multiple=True,
    envvar="GOODPUT_ALLOWED_IMAGES",
    help="Pattern of engine images that Models may name; repeatable. None: any.",
)
@click.option(
    "--metrics-from",
    default="[]",
    help="JSON list of NetworkPolicyPeers that may scrape engine pods. Empty: any pod of the cluster.",
)
@click.option(
    "--pod-monitor-label",
    "pod_monitor_labels",
    metavar="KEY=VALUE",
    multiple=True,
    envvar="GOODPUT_POD_MONITOR_LABELS",
    help="Label of PodMonitors, by which Prometheus selects them; repeatable.",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    envvar="GOODPUT_NAMESPACES",
    help="Namespace to serve; repeatable. None: all.",
)
@click.option("--max-gpus-per-namespace", type=click.IntRange(0), default=None, help="GPUs of one namespace at most.")
@click.option(
    "--max-cost-per-hour-per-namespace", type=click.FloatRange(0), default=None, help="Cost of one namespace at most."
)
@click.option(
    "--max-priority",
    metavar="NAMESPACE=INTEGER",
    multiple=True,
    envvar="GOODPUT_MAX_PRIORITY",
    help="Highest priority that SLOs of a namespace give; '*' is every other; repeatable. None: any.",
)
@click.option("--listen", default="", help="HOST:PORT of metrics and probes; beats the two below.")
@click.option("--listen-host", default="0.0.0.0", help="Address of metrics and probes.")
@click.option("--listen-port", type=click.IntRange(0, 65535), default=8080, help="Port of metrics and probes.")
@click.option("--lease-namespace", default="", help="Namespace of the Lease. Unset: that of this pod.")
@click.option("--lease-name", default="goodput-operator", help="Name of the Lease.")
@click.option("--identity", default="", help="Name of this process in the Lease. Unset: the host name.")
@click.option("--leader-election/--no-leader-election", default=True, help="Without it only one process may run.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", help="Form of the log.")
@click.option("--json-logs", type=bool, default=False, help="The same as --log-format json.")
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False), default="INFO"
)
@click.option(
    "--relist-seconds",
    type=click.FloatRange(1.0),
    default=900.0,
    help="How often everything is listed again, in case watch events were lost.",
)
@click.option("--concurrency", type=click.IntRange(1, 64), default=16, help="Writes at the same time.")
@click.option("--ledger-dir", default="", help="Directory to keep what was seen and decided in. Unset: it is not kept.")
@click.option("--ledger-megabytes", type=click.IntRange(1, 100_000), default=64, help="Size of it at most.")
@click.option("--ledger-days", type=click.FloatRange(0.1, 365.0), default=8.0, help="Age of what is in it at most.")
def main(**given: object) -> None:
    """Run the Goodput operator: vLLM fleets that scale on goodput."""
    settings = settings_of(given)
    logs.configure(json_logs=settings.json_logs, level=settings.log_level)
    try:
        asyncio.run(run_operator(settings))
    except ConfigException as error:
        raise click.ClickException(f"no cluster to talk to: {error}; set KUBECONFIG or run in a pod") from error
    except OSError as error:
        raise click.ClickException(f"cannot start: {error}") from error
    sys.exit(0)


def settings_of(given: dict[str, object]) -> Settings:
    """Settings from the values of the flags above.

    Raises:
        click.BadParameter: --listen is no HOST:PORT, --metrics-from no list of peers, --pod-monitor-label no label,
            --max-priority no number.
    """
    values = dict(given)
    listen = str(values.pop("listen"))
    if listen:
        host, _, port = listen.rpartition(":")
        if not port.isdigit():
            raise click.BadParameter(f"{listen} is not HOST:PORT", param_hint="--listen")
        values["listen_host"], values["listen_port"] = host or "0.0.0.0", int(port)
    values["json_logs"] = bool(values["json_logs"]) or values.pop("log_format") == "json"
    values.pop("log_format", None)
    values["default_mode"] = ScalingMode(str(values["default_mode"]))
    values["allowed_images"] = _listed(values["allowed_images"])  # type: ignore[arg-type]
    values["metrics_from"] = _peers(str(values["metrics_from"]))
    values["pod_monitor_labels"] = _labels(values["pod_monitor_labels"])  # type: ignore[arg-type]
    values["max_priority"] = _priorities(values["max_priority"])  # type: ignore[arg-type]
    values["namespaces"] = _listed(values["namespaces"])  # type: ignore[arg-type]
    values["default_image_pull_secrets"] = _listed(values["default_image_pull_secrets"])  # type: ignore[arg-type]
    values["lease_namespace"] = values["lease_namespace"] or own_namespace()
    values["identity"] = values["identity"] or socket.gethostname()
    return Settings(**values)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
