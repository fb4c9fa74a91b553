"""What completes a folder: report, RO-Crate metadata, flux-cloud's tree; and the runs as CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headrace.experiments.report.archive import complete
from headrace.experiments.report.runs_csv import runs_csv
from headrace.experiments.report.study import read
from headrace.experiments.values import Cell, Run
from studies import SCALING, scaled, study

STEPS = SCALING + 'parameters: {steps: [10, 20], input: ["a, b/\\"c\\""]}\n'


def test_the_crate_describes_what_the_folder_has(tmp_path: Path) -> None:
    """By the rules of RO-Crate 1.1: a descriptor, a root, unique ids, and no reference to what is not there."""
    path = study(tmp_path, STEPS)
    assert complete(str(path)) == path / "report.html"
    crate = json.loads((path / "ro-crate-metadata.json").read_text())
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {one["@id"]: one for one in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    descriptor, root = entities["ro-crate-metadata.json"], entities["./"]
    assert descriptor["about"] == {"@id": "./"} and descriptor["conformsTo"]["@id"] == "https://w3id.org/ro/crate/1.1"
    assert root["@type"] == "Dataset" and {"name", "description", "datePublished", "license"} <= root.keys()
    time.strptime(root["datePublished"], "%Y-%m-%dT%H:%M:%S+00:00")

    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [name for one in value for name in references(one)]
        return [value["@id"]] if isinstance(value, dict) else []

    for name, one in entities.items():
        for key, value in one.items():
            if key != "conformsTo":
                assert set(references(value)) <= entities.keys(), (name, key)
        if one["@type"] in ("File", "Dataset") and name != "./":
            assert (path / unquote(name)).exists()
            assert name.endswith("/") == (path / unquote(name)).is_dir()
        if "contentSize" in one:
            assert int(one["contentSize"]) == (path / name).stat().st_size
    parts = {one["@id"] for one in root["hasPart"]}
    assert parts == {"experiment.yaml", "plan.json", "provenance.json", "report.html", "runs/", "sessions/"}
    assert len(entities["runs/"]["hasPart"]) == 6
    action = entities["#experiment"]
    assert action["instrument"] == {"@id": "#headrace"} and entities["#headrace"]["version"] == "1.2.3"
    assert action["startTime"] < action["endTime"]


def test_completing_a_folder_again_changes_its_files(tmp_path: Path) -> None:
    path = study(tmp_path, ended=2)
    complete(str(path))
    assert "2 of 21 planned runs" in (path / "report.html").read_text()
    first = (path / "ro-crate-metadata.json").read_text()
    (path / "results.sqlite").write_bytes(b"")
    complete(str(path), flux_cloud=True)
    assert "results.sqlite" not in first
    assert {"results.sqlite", "data/"} <= {
        one["@id"] for one in json.loads((path / "ro-crate-metadata.json").read_text())["@graph"]
    }
    assert not list(path.glob(".*"))


def test_the_tree_of_flux_cloud(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        return {**scaled(cell, run, position), "state": "failed" if run.number == 3 else "completed"}

    text = """
matrix: {size: [4], machine: [m5]}
minicluster: {name: lammps, namespace: flux-operator, size: [2, 4]}
targets: {aws: {type: kubernetes}}
variables: {aws: {region: us-east-1}}
jobs:
  lmp: {command: lmp -in in.reaxff, image: "ghcr.io/rse-ops/lammps:tag", repeats: 2, warmup: 1}
  one: {command: "true", size: 2}
"""
    path = study(tmp_path, text, outcome, errors={("lmp-2", 2): b"a warning\n"})
    complete(str(path), flux_cloud=True)
    folder = path / "data/aws/k8s-size-4-m5"
    logs = {one.parent.name: one.read_text() for one in folder.glob("*/log.out")}
    assert logs == {
        "lmp-1-minicluster-size-2": "Loop time of 1.5\na warning\n",
        "lmp-2-minicluster-size-2": "Loop time of 1.5\n",
        "lmp-1-minicluster-size-4": "Loop time of 1.5\n",
        "lmp-2-minicluster-size-4": "Loop time of 1.5\n",
        "one-minicluster-size-2": "Loop time of 1.5\n",
    }
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["times"].keys() == meta["info"].keys() == logs.keys()
    assert (meta["size"], meta["machine"], meta["id"]) == (4, "m5", "k8s-size-4-m5")
    assert meta["minicluster"]["size"] == [2, 4] and meta["minicluster"]["namespace"] == "flux-operator"
    assert meta["jobs"].keys() == {"lmp-1", "lmp-2", "one"} and meta["jobs"]["lmp-1"]["command"] == "lmp -in in.reaxff"
    assert meta["info"]["lmp-2-minicluster-size-2"]["state"] == "failed"
    assert meta["variables"] == {"aws": {"region": "us-east-1"}}
    assert all(one["runtime"] > 0 for one in meta["times"].values())


def test_the_csv_has_a_line_for_each_run(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        if run.number == 2:
            return {"state": "failed", "reason": 'exit 1: "no,\nsuch" file', "exit": 1}
        return {**scaled(cell, run, position), "cost": 0.5}

    found = read(str(study(tmp_path, STEPS, outcome)))
    lines = list(csv.DictReader(io.StringIO(runs_csv(found.results))))
    assert len(lines) == len(found.results) == 42
    for line, result in zip(lines, found.results):
        assert (line["cell"], int(line["number"]), line["state"]) == (result.cell, result.number, result.state)
        assert line["parameter.input"] == 'a, b/"c"' and int(line["parameter.steps"]) == result.parameters["steps"]
        assert line["reason"] == result.reason and line["warmup"] == "0"
        assert line["metric.loop"] == (str(result.metrics["loop"]) if result.metrics else "")
        assert line["phase.program"] == (str(result.phases["program"]) if result.phases else "")
        assert line["cost"] == ("" if result.cost is None else "0.5")
    assert next(csv.reader(io.StringIO(runs_csv([]))))[:2] == ["cell", "number"]
