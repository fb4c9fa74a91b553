"""Files of flux-cloud have the runs that flux-cloud itself derives from them.

`flux_cloud.jsonl` has generated files, each with the runs of flux-cloud 0.2.1 (`expand_experiments`, `iter_jobs`) as
(id of the experiment, size of the MiniCluster, job). Each experiment had a copy of `minicluster` for itself there:
flux-cloud writes the first experiment's size into the one that all share, and then runs all at that size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.experiments.file.load import read_text
from headrace.experiments.file.problems import InvalidExperiment
from headrace.experiments.plan import plan

RECORDED = Path(__file__).parents[2] / "data/experiments/flux_cloud.jsonl"
LINES = [json.loads(line) for line in RECORDED.read_text().splitlines()]


def runs(document: dict[str, Any]) -> list[list[object]]:
    """The runs of a file as flux-cloud names them."""
    experiment = read_text(json.dumps({**document, "order": "as-written"}), "experiments.yaml")
    cells = {cell.id: cell for cell in experiment.cells}
    found = []
    for run in plan(experiment).runs:
        cell = cells[run.cell]
        name = f"k8s-size-{cell.cluster_size}-{cell.machine or 'local'}"
        is_repeated = "repeats" in document["jobs"][cell.job.name]
        found.append([name, cell.size, f"{cell.job.name}-{run.number}" if is_repeated else cell.job.name])
    return found


@pytest.mark.parametrize("line", range(len(LINES)))
def test_runs_are_those_of_flux_cloud_in_its_order(line: int) -> None:
    document, expected = LINES[line]["file"], LINES[line]["runs"]
    if expected:
        assert runs(document) == expected
    else:
        with pytest.raises(InvalidExperiment, match="no cell is left: nothing would run"):
            runs(document)


def test_keys_that_have_no_effect_are_noted() -> None:
    text = """\
matrix: {size: [2]}
x-options: &options {image: osu, flux_option_flags: "-o mpi=pmi2 --exclusive", tasks: 2}
minicluster:
  name: osu
  namespace: flux-operator
  flux_restful: {username: someone, token: "1"}
  logging: {quiet: true}
  tasks: 4
operator: {branch: main}
variables: {zone: us-central1-a, availability_zones: [a, b]}
jobs:
  get:
    command: ./osu_get
    <<: *options
    workdir: /opt/osu
    pre_command: . /etc/profile
    commands: {run_flux_as_root: true, post: date}
    resources: {limits: {cpu: 1}}
  put: {command: ./osu_put, image: osu}
"""
    experiment = read_text(text, "osu.yaml")
    get, put = (cell.job for cell in experiment.cells)
    assert experiment.name == "osu"
    assert experiment.targets[0].namespace == "flux-operator"
    assert (get.image, get.options, get.tasks, get.working_dir) == (
        "osu",
        ("-o", "mpi=pmi2", "--exclusive"),
        2,
        "/opt/osu",
    )
    container = {"commands": {"pre": ". /etc/profile", "post": "date"}, "resources": {"limits": {"cpu": 1}}}
    assert get.minicluster == {"logging": {"quiet": True}, "containers": [container]}
    assert (put.tasks, put.minicluster) == (4, {"logging": {"quiet": True}})
    assert experiment.variables == {"zone": "us-central1-a", "availability_zones": ["a", "b"]}
    ignored = "has no effect: the MiniClusters of flux-framework.org/v1alpha2 have no such field"
    assert experiment.notes == (
        f"osu.yaml:6: minicluster.flux_restful: {ignored}",
        "osu.yaml:9: operator: has no effect: the cluster is yours, or made by `up` of its target",
        f"osu.yaml:17: jobs.get.commands.run_flux_as_root: {ignored}",
    )


def test_volumes_of_v1alpha1_become_folders_of_nodes() -> None:
    text = """\
matrix: {size: [2]}
minicluster:
  volumes:
    data: {storageClass: hostpath, path: /tmp/data}
    other: {storageClass: csi, path: /x}
jobs:
  a: {command: run, volumes: {data: {path: /data}, other: {path: /other}}}
"""
    experiment = read_text(text, "experiments.yaml")
    volumes = {"data": {"hostPath": "/tmp/data", "path": "/data"}}
    assert experiment.cells[0].job.minicluster == {"containers": [{"volumes": volumes}]}
    (note,) = experiment.notes
    assert note.startswith("experiments.yaml:5: minicluster.volumes.other: has no effect: give the job a volume")


def test_resources_of_flux_cloud_0_1_become_those_of_the_container() -> None:
    text = """\
matrix: {size: [2]}
jobs:
  a: {command: run, memory: 340G, cpu: 94}
  b: {command: run, memory: 1G, requests: {cpu: 1, memory: 500M}}
  c: {command: run, cpu: 1, resources: {limits: {cpu: 2}}}
"""
    both = {"memory": "340G", "cpu": 94}
    assert [cell.job.minicluster["containers"][0]["resources"] for cell in read_text(text, "x.yaml").cells] == [
        {"limits": both, "requests": both},
        {"limits": {"memory": "1G"}, "requests": {"memory": "500M", "cpu": 1}},
        {"limits": {"cpu": 2}},
    ]
    with pytest.raises(InvalidExperiment, match=r"x\.yaml:3: jobs\.a\..*: must be a quantity such as 2, 500m or 1Gi"):
        read_text(text.replace("340G", "much"), "x.yaml")


def test_a_minicluster_larger_than_its_cluster_is_left_out() -> None:
    text = "matrix: {size: [2, 4]}\nminicluster:\n  size: [2, 4]\njobs: {a: {command: run}}\n"
    experiment = read_text(text, "experiments.yaml")
    assert [(cell.id, cell.size, cell.cluster_size) for cell in experiment.cells] == [
        ("a-2-of-2", 2, 2),
        ("a-2-of-4", 2, 4),
        ("a-4-of-4", 4, 4),
    ]
    rule = "a MiniCluster of size 4 does not fit on the cluster of size 2: left out"
    assert experiment.notes == (f"experiments.yaml:3: minicluster.size: {rule}",)
