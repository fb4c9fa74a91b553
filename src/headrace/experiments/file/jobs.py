"""A job of the file, with `{{NAME}}` still in its texts, and the job that a cell makes of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from headrace.experiments.values import Job, Repeats, Until

from .document import Value
from .metrics import read_check, read_metrics
from .miniclusters import Fields, MiniClusterDraft, joined, read_container
from .paths import path_rule
from .section import Findings, Section, items_of, scalar_of, text_of, whole_of
from .templates import Scalar, fill, fill_object, fill_texts, names, show

MOST_REPEATS = 1_000_000
_MOST_NODES = 1_000_000
_MOST_RETRIES = 100
# A job's name is a part of names of folders.
NAME_OF_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_LONGEST_NAME = 60
_NUMBERS = {"nodes": _MOST_NODES, "tasks": 10_000_000, "cores": 100_000, "gpus": 10_000}
# Fields of Job whose texts are filled in for each cell.
_TEXTS = ("command", "environment", "working_dir", "inputs", "templates", "outputs", "options", "image")


class JobDraft(Struct, frozen=True):
    """A job of the file.

    `container` are fields of a MiniCluster's container, and `keys` those that a job can have. `numbers` are those of
    the job's numbers that are given as `{{NAME}}`. `sizes` and `machines` are where it runs, None for everywhere.
    """

    job: Job
    repeats: Repeats
    value: Value
    container: Fields
    keys: frozenset[str]
    numbers: dict[str, Value] = {}
    sizes: frozenset[int] | None = None
    machines: frozenset[str] | None = None

    def runs_at(self, size: int, machine: str) -> bool:
        """True if the job runs at this size, and on this machine; without a machine, on any."""
        at_size = self.sizes is None or size in self.sizes
        return at_size and (self.machines is None or not machine or machine in self.machines)

    def filled(self, values: Mapping[str, Scalar], findings: Findings) -> Job:
        """The job of a cell. Names that the cell lacks were reported when the file was read."""
        changes: dict[str, Any] = {name: fill_texts(getattr(self.job, name), values) for name in _TEXTS}
        changes |= {name: fill_object(getattr(self.job, name), values) for name in ("minicluster", "manifest")}
        for name, value in self.numbers.items():
            text = fill(value.data, values)
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text
            changes[name] = whole_of(Value(number, value.line, value.key), findings, 0, 0, _NUMBERS[name])
        return msgspec.structs.replace(self.job, **changes)


def read_job(name: str, value: Value, default: Section, minicluster: MiniClusterDraft, findings: Findings) -> JobDraft:
    """The job of this name. `default` has the keys that are for all jobs: warmup, repeats, retry, timeout."""
    section = Section(value, findings)
    metrics = read_metrics(section.take("metrics"), findings)
    numbers = _read_numbers(section)
    inputs, templates, outputs = _read_files(section.take("files"), findings)
    container = read_container(section, minicluster.volumes)
    manifest = _read_manifest(section.take("manifest"), findings)
    job = Job(
        name=name,
        command=section.text("command"),
        environment=_read_environment(section.take("environment"), findings),
        working_dir=text_of(section.take("working_dir", "workingDir", "workdir"), findings),
        inputs=inputs,
        templates=templates,
        outputs=outputs,
        options=(*_words(section, "options"), *_words(section, "flux_option_flags", "fluxOptionFlags")),
        image=section.text("image"),
        minicluster=joined(minicluster, container),
        manifest=manifest,
        metrics=metrics,
        check=read_check(section.take("check"), findings),
        retry=section.whole("retry", default.whole("retry", 0, 0, _MOST_RETRIES), 0, _MOST_RETRIES),
        timeout=section.seconds("timeout") or default.seconds("timeout"),
        line=value.line,
    )
    given: dict[str, Any] = {key: number for key, number in numbers.items() if isinstance(number, int)}
    draft = JobDraft(
        msgspec.structs.replace(job, **{"tasks": minicluster.tasks, **given}),
        read_repeats(section, default, [metric.name for metric in metrics]),
        value,
        container,
        section.asked | {"size", "sizes", "machine", "machines"},
        {key: number for key, number in numbers.items() if isinstance(number, Value)},
        _only_at(section.take("size", "sizes"), findings),
        _only_on(section.take("machine", "machines"), findings),
    )
    if not section.items.keys() & {"command", "manifest"}:
        findings.wrong(value, "needs a command, or a manifest for Kubernetes", f"{value.key}.command")
    elif "command" in section.items and not str(section.items["command"].data or "").strip():
        findings.wrong(section.items["command"], "is empty")
    if not NAME_OF_JOB.match(name) or len(name) > _LONGEST_NAME:
        rule = f"has at most {_LONGEST_NAME} letters, digits, '.', '_' and '-', a letter or digit first"
        findings.wrong(value, f"the name of a job {rule}")
    section.close()
    return draft


def used_names(value: Value) -> list[tuple[str, int, str]]:
    """The names in the texts of a job or of a field of MiniClusters, each with its line and key."""
    found: list[tuple[str, int, str]] = []
    for scalar in value.scalars():
        if isinstance(scalar.data, str) and ".metrics." not in scalar.key and ".check." not in scalar.key:
            for name, line in names(scalar.data):
                found.append((name, scalar.begins + line if scalar.begins else scalar.line, scalar.key))
    return found


def read_repeats(section: Section, default: Section, metrics: list[str]) -> Repeats:
    """`repeats` and `warmup` of a job, or else those of the experiment."""
    findings = section.findings
    warmup = section.whole("warmup", default.whole("warmup", 0, 0, MOST_REPEATS), 0, MOST_REPEATS)
    value = section.take("repeats") or default.take("repeats")
    if value is None:
        return Repeats(warmup=warmup)
    if not isinstance(value.data, dict):
        number = whole_of(value, findings, 1, 1, MOST_REPEATS)
        return Repeats(least=number, most=number, warmup=warmup)
    bounds = Section(value, findings)
    least = bounds.whole("min", 1, 1, MOST_REPEATS)
    most = bounds.whole("max", least, 1, MOST_REPEATS)
    until = _read_until(bounds.take("until"), metrics, findings)
    bounds.close()
    if most < least:
        findings.wrong(value, f"max ({most}) is smaller than min ({least})")
    if most != least and until is None:
        findings.wrong(value, "min and max need `until: {metric: NAME, relative-ci: 0.05}`, or else write one number")
    return Repeats(least=least, most=max(least, most), until=until, warmup=warmup)


def _read_until(value: Value | None, metrics: list[str], findings: Findings) -> Until | None:
    if value is None:
        return None
    section = Section(value, findings)
    metric, width = section.take("metric"), section.take("relative-ci")
    section.close()
    if metric is None or metric.data not in metrics:
        known = f"one of {', '.join(metrics)}" if metrics else "but the job has none"
        findings.wrong(metric or value, f"must be a metric of the job, {known}", f"{value.key}.metric")
        return None
    if width is None or not isinstance(width.data, float) or not 0 < width.data < 1:
        findings.wrong(width or value, "must be a number between 0 and 1, such as 0.05", f"{value.key}.relative-ci")
        return None
    return Until(metric=metric.data, relative_ci=width.data)


def _read_numbers(section: Section) -> dict[str, int | Value]:
    """Numbers of the job; one that is a text with `{{NAME}}` is its Value, which is read for each cell."""
    found: dict[str, int | Value] = {}
    for name, most in _NUMBERS.items():
        value = section.take(name)
        if value is not None:
            is_template = isinstance(value.data, str) and any(names(value.data))
            found[name] = value if is_template else whole_of(value, section.findings, 0, 0, most)
    return found


def _read_environment(value: Value | None, findings: Findings) -> dict[str, str]:
    found = {}
    for name, item in Section(value, findings).items.items():
        if "=" in name:
            findings.wrong(item, "is no name of an environment variable: it has a '='")
        found[name] = show(scalar_of(item, findings)) if item.data is not None else ""
    return found


def _words(section: Section, *names: str) -> tuple[str, ...]:
    """A list of texts, or one text that is split as a shell would."""
    value = section.take(*names)
    if value is None or not isinstance(value.data, str):
        return tuple(text_of(item, section.findings) for item in items_of(value))
    try:
        return tuple(shlex.split(value.data))
    except ValueError as exc:
        section.findings.wrong(value, f"cannot be split into words: {exc}")
        return ()


def _read_manifest(value: Value | None, findings: Findings) -> dict[str, Any]:
    """An object of Kubernetes, or the path of a file with one."""
    if value is None:
        return {}
    found = value.plain()
    if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in ("apiVersion", "kind")):
        findings.wrong(
            value, "must be an object of Kubernetes, with apiVersion and kind, or the path of a file with one"
        )
        return {}
    return found


def _read_files(value: Value | None, findings: Findings) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Inputs, templates and outputs. An item is a path, or a mapping with one key: in, template or out."""
    found: dict[str, list[str]] = {"in": [], "template": [], "out": []}
    for item in items_of(value):
        if isinstance(item.data, str):
            found["in"].append(_path(item, findings))
            continue
        section = Section(item if isinstance(item.data, dict) else None, findings)
        given = [kind for kind in found if section.take(kind) is not None]
        section.close()
        if len(given) != 1:
            findings.wrong(item, "must be a path, or one of {in: PATH}, {template: PATH} and {out: PATTERN}")
            continue
        path = section.take(given[0])
        if path is not None:
            found[given[0]].append(_path(path, findings))
    return tuple(found["in"]), tuple(found["template"]), tuple(found["out"])


def _path(value: Value, findings: Findings) -> str:
    """A path below the folder of the file, or of a run."""
    path = text_of(value, findings)
    rule = path_rule(path)
    if path and rule:
        findings.wrong(value, rule)
    return path


def _only_at(value: Value | None, findings: Findings) -> frozenset[int] | None:
    if value is None:
        return None
    return frozenset(whole_of(item, findings, 0, 1, _MOST_NODES) for item in items_of(value))


def _only_on(value: Value | None, findings: Findings) -> frozenset[str] | None:
    return None if value is None else frozenset(text_of(item, findings) for item in items_of(value))
