"""`read(path)`: the experiment that a file describes. It also looks at the files that the experiment names."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from headrace.experiments.values import Cell, Experiment, Target

from .document import LARGEST, Value, parse
from .jobs import JobDraft, read_job, used_names
from .matrix import make_cells, read_axes
from .miniclusters import MiniClusterDraft, read_minicluster
from .miniclusters import check as check_minicluster
from .paths import path_rule
from .problems import InvalidExperiment, Problem, unknown
from .section import Findings, Section
from .targets import read_budget, read_targets
from .templates import BUILT_IN, Scalar, names

# Maximum number of runs, with warm-up runs: the plan lists all of them.
MOST_RUNS = 200_000
_ORDERS = ("interleaved", "random", "as-written")
# The largest number that all readers of JSON keep.
_LARGEST_SEED = (1 << 53) - 1
# Keys of flux-cloud for the clusters that it makes.
_WITHOUT_EFFECT = ("kubernetes", "cluster", "operator")
# Keys that jobs have, too, and read if they have none of their own.
_FOR_ALL_JOBS = ("warmup", "repeats", "retry", "timeout")
# Maximum number of bytes of a file in which names are replaced.
_LARGEST_TEMPLATE = 10_000_000


def read(path: str, target: str = "") -> Experiment:
    """Read a file, and look at its inputs. Raises InvalidExperiment with all problems, and OSError.

    If the file declares no targets, it gets one of the type `target` (default: local).
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
    except UnicodeDecodeError as exc:
        raise InvalidExperiment([Problem(0, "", f"not UTF-8 text: {exc.reason} at byte {exc.start}")], path) from None
    return read_text(text, path, target)


def read_text(text: str, path: str, target: str = "") -> Experiment:
    """The experiment of a text that is, or could be, the file `path`. Raises InvalidExperiment."""
    try:
        document = parse(text)
        findings = Findings(document)
        experiment = _read(document, path, target, findings)
        findings.stop_if_wrong()
    except InvalidExperiment as exc:
        raise InvalidExperiment(exc.problems, path) from None
    notes = tuple(note.text(path) for note in sorted(dict.fromkeys(findings.notes)))
    return msgspec.structs.replace(experiment, notes=notes)


def _read(document: Value, path: str, target: str, findings: Findings) -> Experiment:
    top = Section(document, findings)
    minicluster = read_minicluster(top.take("minicluster"), findings)
    targets = read_targets(top.take("targets"), target, minicluster.namespace, findings)
    variables = {key: value.plain() for key, value in Section(top.take("variables"), findings).items.items()}
    axes = read_axes(top, minicluster.sizes, findings)
    folder = os.path.dirname(os.path.abspath(path))
    jobs = Section(top.take("jobs"), findings)
    values = {job: _with_manifest(value, folder, findings) for job, value in jobs.items.items()}
    drafts = [read_job(job, value, top, minicluster, findings) for job, value in values.items()]
    experiment = Experiment(
        name=top.text("name") or minicluster.name or _name(path, folder),
        targets=targets,
        cells=(),
        order=top.choice("order", _ORDERS, "interleaved"),  # type: ignore[arg-type]
        seed=top.whole("seed", 0, 0, _LARGEST_SEED) if top.take("seed") else None,
        budget=read_budget(top.take("budget"), targets, findings),
        folder=folder,
        variables=variables,
    )
    _read_other_keys(top, drafts, findings)
    if not drafts:
        findings.wrong(top.items.get("jobs", document), "needs at least one job: NAME: {command: …}", "jobs")
    scalars: dict[str, Scalar] = {
        key: value for key, value in variables.items() if isinstance(value, (str, int, float))
    }
    known = {*axes.parameters, *scalars, *BUILT_IN}
    fields = (*minicluster.spec.values(), *([minicluster.others] if minicluster.others else []))
    _check_names([*(draft.value for draft in drafts), *fields], known, findings)
    findings.stop_if_wrong()
    cells = make_cells(axes, drafts, targets, scalars, findings)
    findings.stop_if_wrong()
    by_job: dict[str, list[Cell]] = {draft.job.name: [] for draft in drafts}
    for cell in cells:
        by_job[cell.job.name].append(cell)
    for draft in drafts:
        mine = by_job[draft.job.name]
        if not mine:
            findings.note(draft.value, "runs nowhere: at no size, on no machine, or all of its cells are excluded")
        _check_targets(mine, draft, targets, findings)
        _check_miniclusters(mine, draft, minicluster, findings)
        _check_files(mine, draft, folder, known, findings)
    _check_number(cells, document, findings)
    return msgspec.structs.replace(experiment, cells=cells)


def _read_other_keys(top: Section, drafts: Sequence[JobDraft], findings: Findings) -> None:
    """Keys without effect, and unknown ones."""
    for key in _WITHOUT_EFFECT:
        if (ignored := top.take(key)) is not None:
            findings.note(ignored, "has no effect: the cluster is yours, or made by `up` of its target")
    for key in (*_FOR_ALL_JOBS, *(key for key in top.items if key.startswith("x-"))):
        top.take(key)
    top.close(elsewhere=frozenset[str]().union(*(draft.keys for draft in drafts)))


def _with_manifest(value: Value, folder: str, findings: Findings) -> Value:
    """A job whose manifest is an object of Kubernetes, read from a file if the job names one."""
    manifest = value.data.get("manifest") if isinstance(value.data, dict) else None
    if manifest is None or not isinstance(manifest.data, str):
        return value
    rule = path_rule(manifest.data)
    try:
        if not rule:
            with open(os.path.join(folder, manifest.data), encoding="utf-8") as file:
                found = parse(file.read(LARGEST + 1)).moved(manifest.line, manifest.key)
            return Value({**value.data, "manifest": found}, value.line, value.key)
    except InvalidExperiment as exc:
        rule = exc.problems[0].text(manifest.data)
    except (OSError, UnicodeDecodeError) as exc:
        rule = f"{manifest.data}: {exc.strerror if isinstance(exc, OSError) else 'not UTF-8 text'}"
    findings.wrong(manifest, rule)
    return Value({**value.data, "manifest": Value(None, manifest.line, manifest.key)}, value.line, value.key)


def _name(path: str, folder: str) -> str:
    """The name of an experiment that has none: of its file, or its folder if the file has the usual name."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return os.path.basename(folder) if stem in ("experiment", "experiments") else stem


def _check_names(values: Sequence[Value], known: set[str], findings: Findings) -> None:
    for value in values:
        for name, line, key in used_names(value):
            if name not in known:
                findings.problems.append(Problem(line, key, f"{{{{{name}}}}} {unknown('parameter', name, known)}"))


def _check_number(cells: Sequence[Cell], document: Value, findings: Findings) -> None:
    runs = sum(cell.repeats.most + cell.repeats.warmup for cell in cells)
    if runs > MOST_RUNS:
        findings.wrong(document.find("repeats"), f"{runs:,} runs, at most {MOST_RUNS:,} are possible", "repeats")
    if not cells:
        findings.problems += [*findings.notes, Problem(0, "", "no cell is left: nothing would run")]


def _check_targets(cells: Sequence[Cell], draft: JobDraft, targets: Sequence[Target], findings: Findings) -> None:
    """Check that jobs with a manifest run on Kubernetes alone."""
    kinds = {target.name: target.type for target in targets}
    for name in sorted({cell.target for cell in cells if draft.job.manifest and kinds[cell.target] != "kubernetes"}):
        rule = f"needs Kubernetes, and the target {name} is {kinds[name]}: declare targets, or exclude these cells"
        findings.wrong(draft.value.find("manifest"), rule)


def _check_miniclusters(
    cells: Sequence[Cell], draft: JobDraft, minicluster: MiniClusterDraft, findings: Findings
) -> None:
    """Check each of the different MiniClusters of a job."""
    distinct = {msgspec.json.encode(cell.job.minicluster): cell.job.minicluster for cell in cells}
    for fields in distinct.values():
        if fields:
            check_minicluster(fields, minicluster, draft.container, draft.value, findings)


def _check_files(cells: Sequence[Cell], draft: JobDraft, folder: str, known: set[str], findings: Findings) -> None:
    """Check that inputs exist, and the names in templates. A parameter may have put `..` into a path."""
    value = draft.value.find("files")
    templates = {path for cell in cells for path in cell.job.templates}
    outputs = {path for cell in cells for path in cell.job.outputs}
    for path in sorted({path for cell in cells for path in cell.job.inputs} | templates | outputs):
        full = os.path.join(folder, path)
        if rule := path_rule(path):
            findings.wrong(value, rule)
        elif path in outputs:
            continue
        elif not os.path.exists(full):
            findings.wrong(value, f"{full} does not exist")
        elif path in templates:
            _check_template(full, value, known, findings)


def _check_template(path: str, value: Value, known: set[str], findings: Findings) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST_TEMPLATE + 1)
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
        findings.wrong(value, f"{path} cannot be a template: {why} (use `in` for a file that is copied as it is)")
        return
    if len(text) > _LARGEST_TEMPLATE:
        findings.wrong(value, f"{path} cannot be a template: it is larger than {_LARGEST_TEMPLATE // 1_000_000} MB")
    for name, line in names(text):
        if name not in known:
            findings.wrong(value, f"{path}:{line + 1}: {{{{{name}}}}} {unknown('parameter', name, known)}")
