"""One HTTP session to the API server: address and credentials from `kubernetes.config`, shared with kopf.

Tokens are read again through the hook of `kubernetes.config` (a mounted token rotates, an exec plugin's expires), by a
middleware, so that whoever uses the session always sends a valid one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from kubernetes import config
from kubernetes.client import Configuration

# A projected token is renewed by the kubelet well before it ends; once a minute is what client-go does.
TOKEN_REREAD_SECONDS = 60.0
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# No limit: each watch holds a connection (kinds x namespaces), and in a full pool no write would ever get one. What may
# be written at once is limited by the loop's semaphore.
MAX_CONNECTIONS = 0


@dataclass(frozen=True, slots=True)
class Connection:
    """An open session and the address it talks to."""

    server: str
    session: aiohttp.ClientSession
    middlewares: tuple[aiohttp.ClientMiddlewareType, ...] = ()

    async def close(self) -> None:
        """Close the session and its connections."""
        await self.session.close()

    def lend(self, *more: aiohttp.ClientMiddlewareType) -> Connection:
        """A session of its own over the same connections and credentials, which its user may close.

        What it sends goes through `more` as well.
        """
        middlewares = (*self.middlewares, *more)
        session = aiohttp.ClientSession(
            connector=self.session.connector,
            connector_owner=False,
            middlewares=middlewares,
            headers=self.session.headers,
            timeout=self.session.timeout,
        )
        return Connection(self.server, session, middlewares)


class _Credentials:
    """Sends the bearer token or basic credentials, read again when old or refused."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._value: str | None = None
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def _header(self, *, fresh: bool) -> str | None:
        async with self._lock:
            if fresh or time.monotonic() - self._read_at > TOKEN_REREAD_SECONDS:
                # An exec plugin is a process and may take seconds: never in the event loop.
                self._value = await asyncio.to_thread(self._read)
                self._read_at = time.monotonic()
            return self._value

    def _read(self) -> str | None:
        token: str | None = self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            return "Bearer " + token.split(" ", 1)[-1].strip()
        if self._configuration.username:
            return str(self._configuration.get_basic_auth_token())
        return None

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        value = await self._header(fresh=False)
        if value:
            request.headers["Authorization"] = value
        response = await handler(request)
        if response.status != 401 or not value:
            return response
        renewed = await self._header(fresh=True)
        if renewed == value or renewed is None:
            return response
        response.release()
        request.headers["Authorization"] = renewed
        return await handler(request)


def _tls(configuration: Configuration) -> ssl.SSLContext | bool:
    if not configuration.verify_ssl:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context


def load_configuration(context: str | None = None) -> Configuration:
    """Configuration of the environment: KUBECONFIG or ~/.kube/config, else the pod's service account.

    Raises:
        kubernetes.config.ConfigException: there is neither, or it cannot be read.
    """
    configuration = Configuration()
    default = Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser()
    try:
        if os.environ.get("KUBECONFIG") or default.exists() or context is not None:
            config.load_kube_config(client_configuration=configuration, context=context)
        else:
            config.load_incluster_config(client_configuration=configuration)
    except (OSError, TypeError, ValueError, AttributeError, KeyError, yaml.YAMLError) as error:
        # What the library makes of files that are no kubeconfig, with tokens and keys left unsaid.
        raise config.ConfigException(f"the kubeconfig cannot be read ({type(error).__name__})") from error
    return configuration


async def connect(configuration: Configuration, user_agent: str) -> Connection:
    """Open a session; nothing is sent yet."""
    middlewares = (_Credentials(configuration),)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=_tls(configuration), keepalive_timeout=60),
        middlewares=middlewares,
        headers={"User-Agent": user_agent},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        trust_env=False,
    )
    return Connection(server=str(configuration.host).rstrip("/"), session=session, middlewares=middlewares)


def own_namespace(default: str = "default") -> str:
    """Namespace of this pod, or `default` outside a cluster."""
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip() or default
    except OSError:
        return default
