"""Rules that the API server checks, too: each has a CEL rule for the CRD and a Python predicate. Pure.

A rule has CEL if it concerns the fields of one record and its worst case fits the API server's cost budget. The
messages of CEL rules are constant: a message that contains a number would exceed the budget, because the API server
assumes that text made from a number is as long as a whole request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.k8s.objects.problems import Problem

from .fields import Bursting, Container, Flux, Group, Record, Spec


class Comparison(NamedTuple):
    """A rule about a record.

    An error names the field `path` below the record. `holds` returns whether a record, whose fields have the right
    types, obeys the rule. In our own validation `detail` is appended to the message, in the API server `advice`.
    """

    path: str
    cel: str
    holds: Callable[[Any], bool]
    message: str
    detail: Callable[[Any], str] = lambda record: ""
    advice: str = ""


_DURATION = r"[0-9]*\.?[0-9]+(ms|s|m|h|d)?"
_CEL_DURATION = _DURATION.replace("\\", "\\\\")  # within a string of CEL


def _largest(spec: Spec) -> int:
    return max(spec.size, spec.max_size)


def _running_flux(spec: Spec) -> list[int]:
    return [index for index, one in enumerate(spec.containers) if one.run_flux]


COMPARISONS: dict[type[Record], tuple[Comparison, ...]] = {
    Spec: (
        Comparison(
            ".maxSize",
            "!has(self.maxSize) || self.maxSize == 0 || self.maxSize >= self.size",
            lambda spec: not spec.max_size or spec.max_size >= spec.size,
            "must not be below spec.size",
            lambda spec: f", which is {spec.size}",
            ": a larger size needs a larger maxSize first (kubectl patch minicluster NAME"
            ' --type=merge -p \'{"spec": {"maxSize": N}}\')',
        ),
        Comparison(
            ".minSize",
            "!has(self.minSize) || self.minSize <= self.size",
            lambda spec: spec.size < 1 or spec.min_size <= spec.size,
            "must not be above spec.size",
            lambda spec: f", which is {spec.size}",
        ),
        Comparison(
            ".autoscale.minSize",
            "!has(self.autoscale) || self.autoscale.minSize <= self.size"
            " || (has(self.maxSize) && self.autoscale.minSize <= self.maxSize)",
            lambda spec: not spec.autoscale or spec.autoscale.min_size <= _largest(spec),
            "must not be above the largest size (maxSize, else size)",
            lambda spec: f", which is {_largest(spec)}",
        ),
        Comparison(
            ".autoscale.minSize",
            "!has(self.autoscale) || !has(self.minSize) || self.autoscale.minSize >= self.minSize",
            lambda spec: not spec.autoscale or spec.autoscale.min_size >= spec.min_size,
            "must not be below spec.minSize",
            lambda spec: f", which is {spec.min_size}: without that many brokers no job starts",
        ),
        Comparison(
            ".containers",
            "size(self.containers) <= 1 || self.containers.exists_one(one, has(one.runFlux) && one.runFlux)",
            lambda spec: len(spec.containers) <= 1 or len(_running_flux(spec)) == 1,
            "exactly one of several containers must have runFlux: true",
            lambda spec: f"; now {', '.join(f'[{index}]' for index in _running_flux(spec)) or 'none'}",
        ),
    ),
    Container: (
        Comparison(
            ".launcher",
            "(!has(self.launcher) || !self.launcher) || (!has(self.batch) || !self.batch)",
            lambda container: not (container.launcher and container.batch),
            "cannot be combined with batch",
        ),
    ),
    Flux: (
        Comparison(
            ".connectTimeout",
            f"!has(self.connectTimeout) || self.connectTimeout.matches('^({_CEL_DURATION})?$')",
            lambda flux: not flux.connect_timeout or bool(re.fullmatch(_DURATION, flux.connect_timeout)),
            "must be a duration such as 5s or 1m",
            lambda flux: f", not {flux.connect_timeout!r}",
        ),
    ),
    Bursting: (
        Comparison(
            ".clusters",
            "!has(self.hostlist) || self.hostlist == '' || !has(self.clusters) || size(self.clusters) == 0",
            lambda bursting: not (bursting.hostlist and bursting.clusters),
            "cannot be combined with hostlist, which names all hosts",
        ),
    ),
    Group: (
        Comparison(
            ".maxSize",
            "!has(self.maxSize) || self.maxSize == 0 || self.maxSize >= self.size",
            lambda group: not group.max_size or group.max_size >= group.size,
            "must not be below the group's size",
            lambda group: f", which is {group.size}",
        ),
    ),
}


def check_comparisons(record: Record, path: str) -> Iterator[Problem]:
    """The rules that the record at `path` violates."""
    for one in COMPARISONS[type(record)]:
        if not one.holds(record):
            yield Problem(path + one.path, one.message + one.detail(record))
