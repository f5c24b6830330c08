"""Puts many objects into etcd as the API server would store them, past the API server, a hundred at a time.

20,000 pods through the API take 40,000 requests, a quarter of an hour on a busy machine of two cores. The API server
watches etcd, so it serves what appears there as if it had stored it; it reads JSON as well as its own encoding.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp
import orjson

_OPERATIONS = 100  # of one transaction; etcd takes 128
_CONCURRENCY = 4


def stored(item: Mapping[str, Any], *, created: str) -> dict[str, Any]:
    """The object with what the API server gives it at its creation."""
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": created, "generation": 1, **item["metadata"]}
    metadata.pop("resourceVersion", None)
    return {**item, "metadata": metadata}


async def put_all(etcd: str, items: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """Store (key, object) pairs; how many there were.

    Raises aiohttp.ClientError.
    """
    done = 0
    source = iter(items)
    batches = iter(lambda: list(itertools.islice(source, _OPERATIONS)), [])
    async with aiohttp.ClientSession(raise_for_status=True) as session:

        async def worker() -> None:
            nonlocal done
            for batch in batches:
                puts = [
                    {
                        "requestPut": {
                            "key": base64.b64encode(key.encode()).decode(),
                            "value": base64.b64encode(orjson.dumps(item)).decode(),
                        }
                    }
                    for key, item in batch
                ]
                async with session.post(f"{etcd}/v3/kv/txn", data=orjson.dumps({"success": puts})) as answer:
                    await answer.read()
                done += len(batch)

        await asyncio.gather(*(worker() for _ in range(_CONCURRENCY)))
    return done
