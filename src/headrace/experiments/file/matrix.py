"""The combinations of an experiment: its clusters, sizes and parameters, those that are left out, and its cells.

`matrix`, `experiment`, `experiments` and `minicluster.size` mean what they mean to flux-cloud: each entry is a
Kubernetes cluster of a size and on a machine, on which MiniClusters of the given sizes run, if they fit.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from headrace.experiments.values import Cell, Target

from .document import Value
from .jobs import JobDraft
from .problems import unknown
from .section import Findings, Section, items_of, scalar_of, text_of, whole_of
from .templates import BUILT_IN, NAME, Scalar, built_in, show

MOST_NODES = 1_000_000
# Maximum number of cells, before `exclude`.
MOST_CELLS = 20_000
# Maximum number of characters of a value in the id of a cell, and of the id: it names a folder.
_LONGEST_VALUE = 40
_LONGEST_ID = 120
_WAYS = ("matrix", "experiment", "experiments")


class Cluster(Struct, frozen=True):
    """An entry of flux-cloud's matrix. `size` 0 means that the file names no size."""

    size: int = 0
    machine: str = ""


class Axes(Struct, frozen=True):
    """What cells are made of. `sizes` are those of MiniClusters; None: the size of the cluster."""

    clusters: list[Cluster]
    sizes: list[int] | None
    parameters: dict[str, list[Scalar]]
    excluded: list[dict[str, list[str]]]
    excluded_at: list[Value]


def read_axes(top: Section, sizes: Value | None, findings: Findings) -> Axes:
    """Read the keys of the matrix. `sizes` is the value of `minicluster.size`."""
    given = [name for name in _WAYS if name in top.items]
    for name in given[1:]:
        findings.wrong(top.items[name], f"{given[0]} is given, too: only one of {', '.join(_WAYS)} is possible")
    matrix = Section(top.take("matrix"), findings)
    clusters = _read_matrix(matrix)
    for entry in [top.take("experiment"), *items_of(top.take("experiments"))]:
        if entry is not None:
            clusters.append(_read_entry(entry, findings))
    for name in given:
        if top.items[name].data in (None, {}, []):
            findings.wrong(top.items[name], "is empty: nothing would run")
    parameters = {name: value for name, value in matrix.items.items() if name not in ("size", "machine")}
    for name, value in Section(top.take("parameters"), findings).items.items():
        if name in parameters:
            findings.wrong(value, f"is in matrix, too (line {parameters[name].line})")
        parameters[name] = value
    lists = {name: _read_parameter(name, value, findings) for name, value in parameters.items()}
    known = {*lists, "size", "machine", "job", "target"}
    excluded_at = items_of(top.take("exclude"))
    excluded = [_read_exclusion(value, known, findings) for value in excluded_at]
    at = None if sizes is None else _values(sizes, findings)
    return Axes(
        clusters=clusters or [Cluster()],
        sizes=None if at is None else [whole_of(value, findings, 1, 1, MOST_NODES) for value in at],
        parameters=lists,
        excluded=excluded,
        excluded_at=excluded_at,
    )


def _read_matrix(matrix: Section) -> list[Cluster]:
    findings = matrix.findings
    size, machine = matrix.take("size"), matrix.take("machine")
    if size is None and machine is None:
        return []
    sizes = [whole_of(item, findings, 1, 1, MOST_NODES) for item in _values(size, findings)] if size else [0]
    machines = [text_of(item, findings) for item in _values(machine, findings)] if machine else [""]
    # The values of the key that stands first vary slowest, as in flux-cloud.
    if size and machine and list(matrix.items).index("machine") < list(matrix.items).index("size"):
        return [Cluster(size=one, machine=other) for other in machines for one in sizes]
    return [Cluster(size=one, machine=other) for one in sizes for other in machines]


def _read_entry(value: Value, findings: Findings) -> Cluster:
    section = Section(value, findings)
    cluster = Cluster(size=section.whole("size", 0, 1, MOST_NODES), machine=section.text("machine"))
    section.close()
    if not cluster.size:
        findings.wrong(value, "needs a size", f"{value.key}.size")
    return cluster


def _values(value: Value, findings: Findings) -> list[Value]:
    """The values of an axis: at least one, each once."""
    found = items_of(value)
    if not found:
        findings.wrong(value, "has no values: nothing would run")
    for text, count in Counter(show(item.data) for item in found if isinstance(item.data, (str, int, float))).items():
        if count > 1:
            findings.wrong(value, f"has the value {text} {count} times")
    return found


def _read_parameter(name: str, value: Value, findings: Findings) -> list[Scalar]:
    if not NAME.match(name) or len(name) > _LONGEST_VALUE:
        rule = f"the name of a parameter has at most {_LONGEST_VALUE} letters, digits, '_' and '-', a letter first"
        findings.wrong(value, rule)
    if name in BUILT_IN:
        findings.wrong(value, "is a name that every cell has: choose another name")
    return [scalar_of(item, findings) for item in _values(value, findings)]


def _read_exclusion(value: Value, known: set[str], findings: Findings) -> dict[str, list[str]]:
    section = Section(value, findings)
    if not section.items and not findings.problems:
        findings.wrong(value, "is empty: it would leave out all cells")
    for name, item in section.items.items():
        if name not in known:
            findings.wrong(item, unknown("parameter", name, known))
    return {name: [show(scalar_of(one, findings)) for one in items_of(item)] for name, item in section.items.items()}


def make_cells(
    axes: Axes, drafts: list[JobDraft], targets: tuple[Target, ...], variables: dict[str, Scalar], findings: Findings
) -> tuple[Cell, ...]:
    """All cells that are not left out, in the order of the file: cluster, size, job, target, parameters."""
    count = len(axes.clusters) * len(axes.sizes or [0]) * len(drafts) * len(targets)
    count *= math.prod(len(values) for values in axes.parameters.values())
    if count > MOST_CELLS:
        rule = f"{count:,} combinations of sizes, jobs, targets and parameters, at most {MOST_CELLS:,} are possible"
        largest = max(axes.parameters, key=lambda name: len(axes.parameters[name]), default="")
        value = findings.whole.find(f"parameters.{largest}" if largest else "matrix.size")
        findings.wrong(value, rule)
        return ()
    used = [0] * len(axes.excluded)
    cells: dict[str, Cell] = {}
    for cluster, size, draft, target, parameters in _combinations(axes, drafts, targets, findings):
        facts = {**parameters, "size": size, "machine": cluster.machine, "job": draft.job.name, "target": target.name}
        matching = [at for at, rule in enumerate(axes.excluded) if _matches(facts, rule)]
        for at in matching:
            used[at] += 1
        if matching:
            continue
        name = _unique(_id(axes, cluster, size, draft.job.name, target, targets, parameters), cells)
        own = built_in(name, draft.job.name, cluster.machine, size, target.name)
        cells[name] = Cell(
            id=name,
            job=draft.filled({**variables, **parameters, **own}, findings),
            target=target.name,
            size=size,
            cluster_size=cluster.size or size,
            machine=cluster.machine,
            parameters=parameters,
            repeats=draft.repeats,
        )
    for at, value in enumerate(axes.excluded_at):
        if not used[at] and not findings.problems:
            findings.note(value, "leaves out nothing: no cell has these values")
    return tuple(cells.values())


Combination = tuple[Cluster, int, JobDraft, Target, dict[str, Scalar]]


def _combinations(
    axes: Axes, drafts: list[JobDraft], targets: tuple[Target, ...], findings: Findings
) -> Iterator[Combination]:
    names = list(axes.parameters)
    for cluster in axes.clusters:
        for size in axes.sizes or [cluster.size or 1]:
            if cluster.size and size > cluster.size:
                rule = f"a MiniCluster of size {size} does not fit on the cluster of size {cluster.size}: left out"
                findings.note(findings.whole.find("minicluster.size"), rule)
                continue
            for draft in drafts:
                if not draft.runs_at(size, cluster.machine):
                    continue
                for target in targets:
                    for values in itertools.product(*axes.parameters.values()):
                        yield cluster, size, draft, target, dict(zip(names, values))


def _matches(facts: dict[str, Scalar], rule: dict[str, list[str]]) -> bool:
    return all(show(facts[name]) in values for name, values in rule.items() if name in facts)


def _id(
    axes: Axes,
    cluster: Cluster,
    size: int,
    job: str,
    target: Target,
    targets: tuple[Target, ...],
    parameters: dict[str, Scalar],
) -> str:
    """JOB-SIZE, and whatever else differs between cells: the cluster's size, the machine, the target, parameters."""
    parts = [job, str(size)]
    if axes.sizes and len({one.size for one in axes.clusters}) > 1:
        parts.append(f"of-{cluster.size}")
    if len({one.machine for one in axes.clusters}) > 1:
        parts.append(_slug(cluster.machine))
    if len(targets) > 1:
        parts.append(target.name)
    parts += [f"{name}={_slug(show(value))}" for name, value in parameters.items() if len(axes.parameters[name]) > 1]
    return "-".join(parts)


def _slug(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "_", text)[:_LONGEST_VALUE] or "_"


def _unique(name: str, taken: dict[str, Cell]) -> str:
    """The name, shortened, and numbered if it is taken; as lower case, for file systems that do not tell."""
    short = name if len(name) <= _LONGEST_ID else name[: _LONGEST_ID - 8].rstrip("-=")
    found, number = short, 2
    while found in taken:
        found, number = f"{short}~{number}", number + 1
    return found
