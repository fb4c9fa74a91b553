"""The results of an experiment in flux-cloud's tree, for programs that read that.

    data/CLOUD/k8s-size-N-MACHINE/meta.json
    data/CLOUD/k8s-size-N-MACHINE/JOB-REPEAT-minicluster-size-N/log.out

CLOUD is the name of the target. flux-cloud has neither parameters nor failures: cells with parameters have their id for
JOB, and `info` in meta.json has states and exit codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headrace.experiments.report.study import Study
from headrace.experiments.report.summary import duration
from headrace.experiments.store.folder import STDERR, STDOUT, FolderError, write_file
from headrace.experiments.values import Cell, Experiment, Result, Run


def write_flux_cloud(study: Study) -> Path:
    """Write the tree into the experiment's folder; returns `data`. Warm-up runs are left out. Raises FolderError."""
    cells = {cell.id: cell for cell in study.experiment.cells}
    by_folder: dict[str, list[tuple[Cell, Result]]] = {}
    for result in study.results:
        if not result.warmup:
            cell = cells[result.cell]
            by_folder.setdefault(f"{cell.target}/{_expid(cell)}", []).append((cell, result))
    data = study.folder.path / "data"
    try:
        for name, runs in by_folder.items():
            for cell, result in runs:
                folder = data / name / _run_name(cell, result)
                folder.mkdir(parents=True, exist_ok=True)
                write_file(folder / "log.out", b"".join(_outputs(study, result)))
            write_file(
                data / name / "meta.json",
                msgspec.json.format(msgspec.json.encode(_meta(study.experiment, runs)), indent=4),
            )
    except OSError as exc:
        raise FolderError(f"{exc.filename}: {exc.strerror}") from None
    return data


def _expid(cell: Cell) -> str:
    return f"k8s-size-{cell.cluster_size or cell.size}-{cell.machine or 'local'}"


def _job_name(cell: Cell, number: int) -> str:
    """flux-cloud's name: JOB or JOB-REPEAT. With parameters, which flux-cloud has not, the cell's id stands for JOB."""
    name = cell.id if cell.parameters else cell.job.name
    return f"{name}-{number}" if cell.repeats.most > 1 else name


def _run_name(cell: Cell, result: Result) -> str:
    return f"{_job_name(cell, _repeat(cell, result))}-minicluster-size-{cell.size}"


def _repeat(cell: Cell, result: Result) -> int:
    """The number of a run without those for warming up, which come first."""
    return result.number - cell.repeats.warmup


def _outputs(study: Study, result: Result) -> Iterator[bytes]:
    folder = study.folder.run_folder(Run(cell=result.cell, number=result.number))
    for name in (STDOUT, STDERR):
        try:
            yield (folder / name).read_bytes()
        except FileNotFoundError:
            continue


def _meta(experiment: Experiment, runs: list[tuple[Cell, Result]]) -> dict[str, Any]:
    first, _ = runs[0]
    target = next(one for one in experiment.targets if one.name == first.target)
    cluster = {"name": experiment.name, "namespace": target.namespace, **first.job.minicluster}
    meta: dict[str, Any] = {
        "times": {_run_name(cell, result): {"runtime": duration(result), **_phases(result)} for cell, result in runs},
        "info": {_run_name(cell, result): _info(result) for cell, result in runs},
        "size": first.cluster_size or first.size,
        "minicluster": {**cluster, "size": sorted({cell.size for cell, _ in runs})},
        "jobs": {_job_name(cell, _repeat(cell, result)): _job(cell) for cell, result in runs},
        "id": _expid(first),
    }
    if first.machine:
        meta["machine"] = first.machine
    if experiment.variables:
        meta["variables"] = experiment.variables
    return meta


def _phases(result: Result) -> dict[str, float]:
    times = sorted(result.phases.items(), key=lambda item: item[1])
    return {name: after - began for (name, began), (_, after) in zip(times, times[1:])}


def _info(result: Result) -> dict[str, Any]:
    found = {"state": result.state, "exit": result.exit, "reason": result.reason, "nodes": result.nodes}
    return {**found, "metrics": result.metrics, "cost": result.cost}


def _job(cell: Cell) -> dict[str, Any]:
    job = cell.job
    found = {"command": job.command, "image": job.image, "working_dir": job.working_dir, "tasks": job.tasks}
    found |= {"cores": job.cores, "gpus": job.gpus, "size": cell.size}
    return {name: value for name, value in found.items() if value}
