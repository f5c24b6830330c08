"""Prometheus text exposition of counters, gauges, histograms and summaries whose labels never change per sample.

Label text is rendered once, when a series is created; a scrape formats numbers only.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

Labels = Mapping[str, str]


def escape(value: str) -> str:
    """A label value as the text format wants it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def label_text(labels: Labels) -> str:
    """`{a="1",b="2"}` in the order of names, or nothing."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in sorted(labels.items())) + "}"


class Value:
    """One series of a counter or a gauge."""

    __slots__ = ("created", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created = time.time()

    def add(self, amount: float) -> None:
        """Count on."""
        self.value += amount

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value


class Summary:
    """Count and sum, no quantiles."""

    __slots__ = ("count", "created", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.created = time.time()

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.count += 1
        self.total += value


class Histogram:
    """Counts by upper bound (inclusive), with count and sum."""

    __slots__ = ("counts", "created", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(float(edge) for edge in edges)
        self.counts = [0] * (len(self.edges) + 1)
        self.total = 0.0
        self.created = time.time()

    def observe(self, value: float, times: int = 1) -> None:
        """Add an observation, `times` over."""
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)


class Family:
    """All series of one metric name."""

    __slots__ = ("_buckets", "_children", "_labels", "documentation", "edges", "kind", "name")

    def __init__(self, name: str, kind: str, documentation: str, edges: Sequence[float] = ()) -> None:
        self.name = name
        self.kind = kind
        self.documentation = documentation
        self.edges = edges
        self._children: dict[tuple[tuple[str, str], ...], Value | Summary | Histogram] = {}
        self._labels: list[str] = []
        self._buckets: list[list[str]] = []

    def child(self, labels: Labels) -> Value | Summary | Histogram:
        """The series with these labels, created with 0 at the first call."""
        key = tuple(sorted(labels.items()))
        found = self._children.get(key)
        if found is None:
            if self.kind == "histogram":
                found = Histogram(self.edges)
                bounds = [repr(edge) for edge in found.edges] + ["+Inf"]
                self._buckets.append([f"{self.name}_bucket{label_text({**labels, 'le': bound})} " for bound in bounds])
            else:
                found = Summary() if self.kind == "summary" else Value()
                self._buckets.append([])
            self._children[key] = found
            self._labels.append(label_text(labels))
        return found

    def render(self, lines: list[str], created: bool) -> None:
        """Append the family's lines; `created` adds the gauge of creation times that prometheus_client exports."""
        name = self.name
        lines.append(f"# HELP {name} {self.documentation}")
        lines.append(f"# TYPE {name} {self.kind}")
        for child, labels, buckets in zip(self._children.values(), self._labels, self._buckets, strict=True):
            if isinstance(child, Histogram):
                cumulative = list(accumulate(child.counts))
                lines.extend([f"{bucket}{count}.0" for bucket, count in zip(buckets, cumulative, strict=True)])
                lines.append(f"{name}_count{labels} {cumulative[-1]}.0")
                lines.append(f"{name}_sum{labels} {child.total!r}")
            elif isinstance(child, Summary):
                lines.append(f"{name}_count{labels} {float(child.count)!r}")
                lines.append(f"{name}_sum{labels} {child.total!r}")
            else:
                lines.append(f"{name}{labels} {float(child.value)!r}")
        if created and self.kind != "gauge":
            base = name.removesuffix("_total") if self.kind == "counter" else name
            lines.append(f"# HELP {base}_created {self.documentation}")
            lines.append(f"# TYPE {base}_created gauge")
            for child, labels in zip(self._children.values(), self._labels, strict=True):
                lines.append(f"{base}_created{labels} {child.created!r}")


class Registry:
    """Families in the order of their creation."""

    def __init__(self, created_series: bool = True) -> None:
        self._created = created_series
        self._families: dict[str, Family] = {}

    def family(self, name: str, kind: str, documentation: str, edges: Sequence[float] = ()) -> Family:
        """The family of that name, created at the first call."""
        if name not in self._families:
            self._families[name] = Family(name, kind, documentation, edges)
        return self._families[name]

    def value(self, name: str, kind: str, documentation: str, labels: Labels) -> Value:
        """A counter's or gauge's series."""
        child = self.family(name, kind, documentation).child(labels)
        assert isinstance(child, Value)
        return child

    def histogram(self, name: str, documentation: str, labels: Labels, edges: Sequence[float]) -> Histogram:
        """A histogram's series."""
        child = self.family(name, "histogram", documentation, edges).child(labels)
        assert isinstance(child, Histogram)
        return child

    def summary(self, name: str, documentation: str, labels: Labels) -> Summary:
        """A summary's series."""
        child = self.family(name, "summary", documentation).child(labels)
        assert isinstance(child, Summary)
        return child

    def render(self, extra: Iterable[str] = ()) -> bytes:
        """The whole exposition; `extra` lines come first."""
        lines = list(extra)
        for family in self._families.values():
            family.render(lines, self._created)
        lines.append("")
        return "\n".join(lines).encode()
