"""The metrics of one process, and their text form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace.formats.exposition.histogram import WORK, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Metrics:
    """Counters and histograms that the process updates, and values that are read at each scrape."""

    def __init__(self) -> None:
        self._help: dict[str, tuple[str, str, Labels]] = {}
        self._counts: dict[str, dict[Labels, float]] = {}
        self._reads: dict[str, Callable[[], Mapping[Labels, float]]] = {}
        self._histograms: dict[str, Callable[[], Mapping[Labels, Histogram]]] = {}
        self._kept: dict[str, tuple[Sequence[float], dict[Labels, Histogram]]] = {}

    def counter(self, name: str, text: str, labels: Labels = ()) -> None:
        self._help[name] = ("counter", text, labels)
        self._counts[name] = {} if labels else {(): 0.0}

    def gauge(self, name: str, text: str, read: Callable[[], Mapping[Labels, float]], labels: Labels = ()) -> None:
        self._help[name] = ("gauge", text, labels)
        self._reads[name] = read

    def total_of(self, name: str, text: str, read: Callable[[], Mapping[Labels, float]], labels: Labels = ()) -> None:
        """Register a counter whose values `read` returns."""
        self._help[name] = ("counter", text, labels)
        self._reads[name] = read

    def histogram(self, name: str, text: str, labels: Labels = (), bounds: Sequence[float] = WORK) -> None:
        held: dict[Labels, Histogram] = {} if labels else {(): Histogram(bounds)}
        self._kept[name] = (bounds, held)
        self._help[name] = ("histogram", text, labels)
        self._histograms[name] = lambda: held

    def histogram_of(
        self, name: str, text: str, read: Callable[[], Mapping[Labels, Histogram]], labels: Labels = ()
    ) -> None:
        """Register a histogram that `read` returns."""
        self._help[name] = ("histogram", text, labels)
        self._histograms[name] = read

    def count(self, name: str, *values: str, add: float = 1.0) -> None:
        held = self._counts[name]
        held[values] = held.get(values, 0.0) + add

    def total(self, name: str) -> float:
        """The sum of a counter over all its labels."""
        return sum(self._counts[name].values())

    def observe(self, name: str, number: float, *values: str) -> None:
        bounds, held = self._kept[name]
        if values not in held:
            held[values] = Histogram(bounds)
        held[values].observe(number)

    def text(self) -> str:
        return "".join(line + "\n" for name in self._help for line in self._lines(name))

    def _lines(self, name: str) -> Iterator[str]:
        kind, text, labels = self._help[name]
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        if kind == "histogram":
            for values, held in sorted(self._histograms[name]().items(), key=lambda row: row[0]):
                cumulative = held.cumulative()
                for bound, count in zip((*held.bounds, "+Inf"), cumulative):
                    yield _line(f"{name}_bucket", (*labels, "le"), (*values, str(bound)), str(count))
                yield _line(f"{name}_count", labels, values, str(cumulative[-1]))
                yield _line(f"{name}_sum", labels, values, f"{held.sum:.6f}")
            return
        rows = self._counts[name] if name in self._counts else self._reads[name]()
        for values, number in sorted(rows.items()):
            yield _line(name, labels, values, _number(number))


def _number(number: float) -> str:
    # All digits: with the six digits of `g`, a large counter would appear not to change.
    return str(int(number)) if number == int(number) else repr(float(number))


def _line(name: str, labels: Labels, values: Labels, number: str) -> str:
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
