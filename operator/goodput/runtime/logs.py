"""Logging of the process: one line a record, as text or JSON. Fields of a record come from `extra={"data": {...}}`.

No object is ever logged whole: Secrets are never read, and environment values of Models stay out of messages.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's data, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        data = getattr(record, "data", None)
        if isinstance(data, dict):
            line |= {key: value for key, value in data.items() if key not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:
            # Half a surrogate pair, or a number beyond 64 bits: what orjson refuses the standard library escapes.
            return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """The same for people: the data follows as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the library's hook
        text = super().formatMessage(record)
        data = getattr(record, "data", None)
        if isinstance(data, dict) and data:
            text += "  " + " ".join(f"{key}={value}" for key, value in data.items())
        return text


def configure(*, json_logs: bool, level: str) -> None:
    """Set up the root logger; libraries that speak of every object are quietened."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json_logs else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("kopf.objects", "kopf._core.reactor", "kopf._cogs", "aiohttp.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its retries say nothing that the reading's own error does not.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
