"""RO-Crate metadata, with which an archive knows what the folder of an experiment has.

Source: RO-Crate Metadata Specification 1.1, https://w3id.org/ro/crate/1.1. The runs are described by their cells, not
file by file: the metadata of 10,000 runs would be larger than their results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.experiments.report.sentences import sentences
from headrace.experiments.report.study import Study
from headrace.experiments.report.summary import CellSummary, Summary
from headrace.experiments.store.folder import FolderError, write_file

NAME = "ro-crate-metadata.json"
# Files at the top of the folder, with what they are and their media types. One that does not exist is left out.
_FILES = {
    "experiment.yaml": ("The experiment as it was given", "application/yaml"),
    "plan.json": ("All runs in their order, and the seed of the order", "application/json"),
    "provenance.json": ("Versions, machine and environment", "application/json"),
    "results.sqlite": ("A row for each run", "application/vnd.sqlite3"),
    "report.html": ("Report with charts and tables", "text/html"),
}
_FOLDERS = {
    "runs": "A folder for each run, by cell and number: output, eventlog, result and files",
    "sessions": "When and on which targets runs were carried out",
    "data": "The results in the tree of flux-cloud",
}
# A crate must have a license, which only the authors can choose.
_LICENSE = {
    "@id": "#license",
    "@type": "CreativeWork",
    "name": "No license stated",
    "description": "The authors have not stated a license yet. Replace this entry before the results are published.",
}


def write_crate(study: Study, summary: Summary) -> Path:
    """Write the metadata into the experiment's folder; returns its path. Raises FolderError."""
    path = study.folder.path / NAME
    text = msgspec.json.format(msgspec.json.encode(crate(study, summary)), indent=2)
    try:
        write_file(path, text + b"\n")
    except OSError as exc:
        raise FolderError(f"{exc.filename}: {exc.strerror}") from None
    return path


def crate(study: Study, summary: Summary) -> dict[str, Any]:
    """The metadata of a folder as it is now."""
    folder = study.folder.path
    files = [_file(folder, name, *facts) for name, facts in _FILES.items() if (folder / name).is_file()]
    cells = [_cell(cell) for cell in summary.cells if (folder / "runs" / cell.id).is_dir()]
    folders: list[dict[str, Any]] = [
        {"@id": f"{name}/", "@type": "Dataset", "name": name, "description": text}
        for name, text in _FOLDERS.items()
        if (folder / name).is_dir()
    ]
    for one in folders:
        if one["name"] == "runs":
            one["hasPart"] = _refer(cells)
    parts = [*files, *folders]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Experiment {summary.name}",
        "description": " ".join(sentences(summary)),
        "datePublished": _moment(summary.ended or time.time()),
        "license": {"@id": "#license"},
        "hasPart": _refer(parts),
        "mentions": {"@id": "#experiment"},
    }
    descriptor = {
        "@id": NAME,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    graph = [descriptor, root, *parts, *cells, *_action(study, summary, files, folders), _LICENSE]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _refer(entities: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": one["@id"]} for one in entities]


def _file(folder: Path, name: str, text: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"@id": name, "@type": "File", "name": name, "description": text, "encodingFormat": kind}
    # The metadata is written while the database may still change its size.
    return found if name.endswith(".sqlite") else {**found, "contentSize": str((folder / name).stat().st_size)}


def _cell(cell: CellSummary) -> dict[str, Any]:
    text = f"{cell.completed} of {cell.planned} planned runs completed, {cell.failed} failed"
    return {"@id": f"runs/{quote(cell.id)}/", "@type": "Dataset", "name": cell.id, "description": text}


def _action(
    study: Study, summary: Summary, files: list[dict[str, Any]], folders: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What made the results: Headrace, from the experiment's file."""
    headrace = study.provenance.get("headrace")
    version = str(headrace.get("version", "")) if isinstance(headrace, dict) else ""
    given = [one for one in files if one["@id"] in ("experiment.yaml", "plan.json")]
    made = [one for one in (*files, *folders) if one["@id"] in ("results.sqlite", "runs/")]
    software = {"@id": "#headrace", "@type": "SoftwareApplication", "name": "Headrace", "version": version or "unknown"}
    action: dict[str, Any] = {
        "@id": "#experiment",
        "@type": "CreateAction",
        "name": f"headrace experiment run: {summary.runs} runs",
        "instrument": {"@id": "#headrace"},
        "object": _refer(given),
        "result": _refer(made),
    }
    if summary.runs:
        action |= {"startTime": _moment(summary.started), "endTime": _moment(summary.ended)}
    return [action, software]


def _moment(seconds: float) -> str:
    """A time in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))
