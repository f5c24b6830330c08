"""Talks to the cluster of the kubeconfig, for one command; errors say what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from goodput.adapters.kinds import Resource
    from goodput.adapters.kube import KubeClient
    from goodput.adapters.objects import Object

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace: the global flags of kubectl."""

    context: str | None = None
    namespace: str | None = None


def run(target: Target, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run `work` against the cluster.

    Raises:
        click.ClickException: with what to do about it.
    """
    import asyncio

    from kubernetes.config import ConfigException

    from goodput.adapters.kube import KubeClient
    from goodput.adapters.kube_connection import connect, load_configuration
    from goodput.adapters.kube_errors import KubeError, NotFound, Refused, Unavailable

    async def connected() -> T:
        connection = await connect(load_configuration(target.context), f"kubectl-goodput/{version('goodput-operator')}")
        try:
            return await work(KubeClient(connection, deadline_seconds=10.0))
        finally:
            await connection.close()

    try:
        return asyncio.run(connected())
    except ConfigException as error:
        raise click.ClickException(f"no cluster is configured ({error}): set KUBECONFIG or --context") from error
    except Unavailable as error:
        raise click.ClickException(f"the cluster does not answer ({error}): check `kubectl cluster-info`") from error
    except NotFound as error:
        raise click.ClickException(f"{error}: are Goodput's CRDs installed? See `kubectl get crd`") from error
    except Refused as error:
        raise click.ClickException(f"the cluster refused it: {error}") from error
    except KubeError as error:
        raise click.ClickException(str(error)) from error


def namespace_of(target: Target) -> str:
    """The namespace that kubectl would use."""
    if target.namespace:
        return target.namespace
    import yaml
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        contexts, active = list_kube_config_contexts()
    except (ConfigException, OSError, TypeError, yaml.YAMLError):
        return "default"
    chosen = next((c for c in contexts if c["name"] == target.context), active) if target.context else active
    return str((chosen or {}).get("context", {}).get("namespace") or "default")


async def list_all(api: KubeClient, resource: Resource, namespace: str | None) -> list[Object]:
    """All objects of a kind."""
    found: list[Object] = []
    async for page, _ in api.pages(resource, namespace):
        found += page
    return found


async def get_model(api: KubeClient, namespace: str, name: str) -> Object:
    """The Model of this name.

    Raises:
        click.ClickException: there is none; names those that there are.
    """
    from goodput.adapters.kinds import MODELS
    from goodput.adapters.kube_errors import NotFound

    try:
        return await api.get(MODELS, namespace, name)
    except NotFound as error:
        known = [item["metadata"]["name"] for item in await list_all(api, MODELS, namespace)]
        there = f"there are: {', '.join(sorted(known))}" if known else "it has none; try -n NAMESPACE"
        raise click.ClickException(f"no Model {name} in namespace {namespace}; {there}") from error


def field(item: Any, *path: str, default: Any = None) -> Any:
    """A value deep in a decoded object, or the default."""
    for part in path:
        if not isinstance(item, dict) or item.get(part) is None:
            return default
        item = item[part]
    return item
