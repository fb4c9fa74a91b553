"""Counters, gauges and histograms of a process, written in Prometheus' text format (version 0.0.4).

This is a few lines, where prometheus_client would add collectors, registries and a server, and aiohttp is a dependency
already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

Labels = tuple[str, ...]


class Metrics:
    """One process's metrics. Gauges are read for each request."""

    def __init__(self) -> None:
        self._help: dict[str, tuple[str, str, Labels]] = {}
        self._counts: dict[str, dict[Labels, float]] = {}
        self._gauges: dict[str, Callable[[], Mapping[Labels, float]]] = {}
        self._sums: dict[str, dict[Labels, list[float]]] = {}

    def counter(self, name: str, text: str, labels: Labels = ()) -> None:
        self._help[name] = ("counter", text, labels)
        self._counts[name] = {} if labels else {(): 0.0}

    def gauge(self, name: str, text: str, read: Callable[[], Mapping[Labels, float]], labels: Labels = ()) -> None:
        self._help[name] = ("gauge", text, labels)
        self._gauges[name] = read

    def histogram(self, name: str, text: str, labels: Labels = ()) -> None:
        self._help[name] = ("histogram", text, labels)
        self._sums[name] = {}

    def count(self, name: str, *values: str, add: float = 1.0) -> None:
        held = self._counts[name]
        held[values] = held.get(values, 0.0) + add

    def total(self, name: str) -> float:
        """The sum of a counter over all its labels."""
        return sum(self._counts[name].values())

    def observe(self, name: str, seconds: float, *values: str) -> None:
        held = self._sums[name].setdefault(values, [0.0] * (len(_BUCKETS) + 2))
        for index, bound in enumerate(_BUCKETS):
            if seconds <= bound:
                held[index] += 1
        held[-2] += 1
        held[-1] += seconds

    def text(self) -> str:
        return "".join(line + "\n" for name in self._help for line in self._lines(name))

    def _lines(self, name: str) -> Iterator[str]:
        kind, text, labels = self._help[name]
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        if kind == "histogram":
            for values, held in sorted(self._sums[name].items()):
                for bound, count in zip((*_BUCKETS, "+Inf"), held):
                    yield _line(f"{name}_bucket", (*labels, "le"), (*values, str(bound)), f"{count:g}")
                yield _line(f"{name}_count", labels, values, f"{held[-2]:g}")
                yield _line(f"{name}_sum", labels, values, f"{held[-1]:.6f}")
            return
        rows = self._counts[name] if kind == "counter" else self._gauges[name]()
        for values, number in sorted(rows.items()):
            yield _line(name, labels, values, f"{number:g}")


def _line(name: str, labels: Labels, values: Labels, number: str) -> str:
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
