"""The HTTP and process families beside the engine's own, as vLLM's server exports them."""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Callable
from pathlib import Path

from goodput_world.engine.edges import HTTP_COARSE_EDGES, HTTP_FINE_EDGES
from goodput_world.engine.exposition import Registry, label_text

UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})


class HttpMetrics:
    """Requests by handler, method and status group; probes and scrapes are left out."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._recorders: dict[tuple[str, str, int], Callable[[float, int, int], None]] = {}
        self._fine = registry.histogram(
            "http_request_duration_highr_seconds", "Duration of requests.", {}, HTTP_FINE_EDGES
        )

    def record(
        self, handler: str, method: str, status: int, *, seconds: float, size: int = 0, answer_size: int = 0
    ) -> None:
        """A request was answered."""
        if handler in UNCOUNTED:
            return
        key = (handler, method, status // 100)
        recorder = self._recorders.get(key)
        if recorder is None:
            recorder = self._recorders[key] = self._recorder(*key)
        recorder(seconds, size, answer_size)

    def _recorder(self, handler: str, method: str, group: int) -> Callable[[float, int, int], None]:
        registry = self._registry
        total = registry.value(
            "http_requests_total",
            "counter",
            "Requests by handler, method and status group.",
            {"handler": handler, "method": method, "status": f"{group}xx"},
        )
        request_size = registry.summary("http_request_size_bytes", "Size of requests.", {"handler": handler})
        answer_size = registry.summary("http_response_size_bytes", "Size of answers.", {"handler": handler})
        coarse = registry.histogram(
            "http_request_duration_seconds",
            "Duration of requests by handler.",
            {"handler": handler, "method": method},
            HTTP_COARSE_EDGES,
        )

        def record(seconds: float, size: int, answer: int) -> None:
            total.add(1)
            request_size.observe(size)
            answer_size.observe(answer)
            self._fine.observe(seconds)
            coarse.observe(seconds)

        return record


def process_lines(started_at: float) -> list[str]:
    """The `process_*` and `python_*` families of this process; `started_at` is in seconds of the epoch."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {float(value)!r}" for labels, value in samples)

    stats = gc.get_stats()
    generations = [label_text({"generation": str(index)}) for index in range(len(stats))]
    for name, field, text in (
        ("python_gc_objects_collected_total", "collected", "Objects collected."),
        ("python_gc_objects_uncollectable_total", "uncollectable", "Objects that could not be collected."),
        ("python_gc_collections_total", "collections", "Collections by generation."),
    ):
        family(name, "counter", text, [(label, stat[field]) for label, stat in zip(generations, stats, strict=True)])
    major, minor, patch = platform.python_version_tuple()
    info = {
        "implementation": platform.python_implementation(),
        "major": major,
        "minor": minor,
        "patchlevel": patch,
        "version": platform.python_version(),
    }
    family("python_info", "gauge", "The Python in use.", [(label_text(info), 1.0)])
    pages = [int(field) for field in Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]]
    page_bytes = resource.getpagesize()
    family("process_virtual_memory_bytes", "gauge", "Virtual memory.", [("", pages[0] * page_bytes)])
    family("process_resident_memory_bytes", "gauge", "Resident memory.", [("", pages[1] * page_bytes)])
    family("process_start_time_seconds", "gauge", "Start of the process.", [("", started_at)])
    times = os.times()
    family("process_cpu_seconds_total", "counter", "Processor time.", [("", times.user + times.system)])
    family("process_open_fds", "gauge", "Open files.", [("", len(os.listdir("/proc/self/fd")))])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    family("process_max_fds", "gauge", "Open files allowed.", [("", limit)])
    return lines
