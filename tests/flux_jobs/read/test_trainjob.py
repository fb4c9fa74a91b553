"""TrainJobs with their runtimes: what the trainer says, what the runtime does, and the overrides of each version."""

from __future__ import annotations

from typing import Any

import pytest

from flux_jobs.read.samples import Document, problems, read, runtime, trainjob
from headrace.flux_jobs.read.cluster import Part
from headrace.flux_jobs.read.options import ANNOTATION, Run
from headrace.flux_jobs.read.runtimes import BUILT_IN

COMMAND = {"command": ["python", "train.py"]}


def env(**variables: str) -> list[Document]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def test_the_trainer_is_put_into_the_runtimes_job() -> None:
    trainer = {"image": "mine", "args": ["--fast"], "env": env(B="2", C="3"), "numNodes": 3, "numProcPerNode": 2}
    base = runtime({"numNodes": 7}, command=["python", "theirs.py"], args=["--slow"], env=env(A="1", B="1"))
    cluster = read(trainjob(trainer), base)
    assert (cluster.kind, cluster.name, cluster.parts) == ("TrainJob", "train", (Part("train-node-0", 3, 3),))
    assert (cluster.procs, cluster.tasks) == (2, 6)
    assert cluster.argv == ("python", "theirs.py", "--fast")
    assert cluster.variables(lambda _source: None) == {"A": "1", "B": "2", "C": "3"}
    assert cluster.job["spec"]["template"]["spec"]["containers"][0]["image"] == "mine"
    assert any("dataset-initializer" in path for path in cluster.others)


@pytest.mark.parametrize(
    ("trainer", "policy", "size", "procs"),
    [
        (None, {}, 1, 1),
        ({}, {"numNodes": 4}, 4, 1),
        ({}, {"numNodes": 2, "flux": {"numProcPerNode": 3}}, 2, 3),
        ({"numNodes": 1, "numProcPerNode": 5}, {"numNodes": 2, "flux": {"numProcPerNode": 3}}, 1, 5),
        ({"numProcPerNode": "6"}, {"torch": {"numProcPerNode": "2"}}, 1, 6),
        ({}, {"torch": {"numProcPerNode": "2"}}, 1, 2),
        ({"numProcPerNode": "auto"}, {"torch": {}}, 1, 1),
        ({"numProcPerNode": "auto", "resourcesPerNode": {"limits": {"cpu": "3"}}}, {}, 1, 3),
        ({"numProcPerNode": "auto", "resourcesPerNode": {"limits": {"cpu": "3", "nvidia.com/gpu": 2}}}, {}, 1, 2),
        ({"numProcPerNode": "cpu", "resourcesPerNode": {"requests": {"cpu": "1500m"}}}, {}, 1, 1),
    ],
)
def test_a_number_that_is_missing_is_the_runtimes_then_one(
    trainer: Document | None, policy: Document, size: int, procs: int
) -> None:
    cluster = read(trainjob(trainer), runtime(policy, **COMMAND))
    assert (cluster.size, cluster.procs) == (size, procs)


def test_the_runtimes_that_headrace_brings_are_known_by_name() -> None:
    distributed = read(trainjob(COMMAND, "headrace-distributed"))
    torch = read(trainjob(COMMAND, "headrace-torch"))
    assert (distributed.run, torch.run) == (Run.TASKS, Run.NODE)
    before = repr(BUILT_IN)
    read(trainjob({**COMMAND, "numNodes": 5, "env": env(A="1")}, "headrace-torch"))
    assert repr(BUILT_IN) == before


def override_2_0(**fields: Any) -> Document:
    return {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], **fields}]}


def override_2_1(metadata: Document, **fields: Any) -> Document:
    return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "metadata": metadata, "spec": fields}]}


def patch_2_2(metadata: Document, **fields: Any) -> Document:
    template = {"metadata": metadata, "spec": {"template": {"metadata": metadata, "spec": fields}}}
    jobs = [{"name": "node", "template": template}]
    return {
        "runtimePatches": [{"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    }


@pytest.mark.parametrize(
    "fields",
    [
        override_2_0(containers=[{"name": "node", "env": env(A="9")}], nodeSelector={"gpu": "yes"}),
        override_2_1(
            {"labels": {"a": "b"}}, containers=[{"name": "node", "env": env(A="9")}], nodeSelector={"gpu": "yes"}
        ),
        patch_2_2(
            {"labels": {"a": "b"}}, containers=[{"name": "node", "env": env(A="9")}], nodeSelector={"gpu": "yes"}
        ),
    ],
)
def test_overrides_of_each_version_apply_to_the_pods(fields: Document) -> None:
    cluster = read(trainjob({"env": env(B="2")}, **fields), runtime(env=env(A="1"), **COMMAND))
    assert cluster.variables(lambda _source: None) == {"A": "9", "B": "2"}
    assert cluster.job["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "yes"}
    if "podSpecOverrides" not in fields:
        assert cluster.job["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_a_variable_that_is_overridden_keeps_its_place() -> None:
    """A reference is to a variable before it: one that moved to the end would leave `$(ROOT)` as text."""
    base = runtime(env=env(ROOT="/a", DATA="$(ROOT)/data"), **COMMAND)
    cluster = read(trainjob({"env": env(MORE="$(DATA)/more", ROOT="/b")}), base)
    assert cluster.variables(lambda _source: None) == {"ROOT": "/b", "DATA": "/b/data", "MORE": "/b/data/more"}


def test_the_trainer_is_merged_after_the_overrides() -> None:
    patch = override_2_0(containers=[{"name": "node", "env": env(ROOT="/patch", EXTRA="/extra")}])
    base = runtime(env=env(ROOT="/a", DATA="$(ROOT)$(EXTRA)"), **COMMAND)
    cluster = read(trainjob({"env": env(ROOT="/b")}, **patch), base)
    assert cluster.variables(lambda _source: None) == {"ROOT": "/b", "EXTRA": "/extra", "DATA": "/b/extra"}


def test_an_override_changes_what_it_names_and_nothing_else() -> None:
    pod = {
        "nodeSelector": {"gpu": "no"},
        "tolerations": [{"key": "b"}],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/b", "readOnly": True}]}],
    }
    mounts = [{"name": "data", "mountPath": path} for path in ("/a", "/b")]
    base = runtime(volumeMounts=mounts, **COMMAND)
    spec = base["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    spec.update(
        nodeSelector={"gpu": "yes", "zone": "a"},
        tolerations=[{"key": "a"}],
        volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {"medium": "Memory"}}],
    )
    found = read(trainjob({}, **override_2_1({}, **pod)), base).job["spec"]["template"]["spec"]
    assert found["nodeSelector"] == {"gpu": "no", "zone": "a"}
    assert found["tolerations"] == [{"key": "b"}]
    assert found["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
    assert found["containers"][0]["volumeMounts"] == [mounts[0], {**mounts[1], "readOnly": True}]


def test_a_deadline_is_the_jobs() -> None:
    cluster = read(trainjob(COMMAND, activeDeadlineSeconds=60), runtime())
    assert cluster.job["spec"]["activeDeadlineSeconds"] == 60
    assert problems(trainjob(COMMAND, activeDeadlineSeconds="1m"), runtime()) == {
        "spec.activeDeadlineSeconds": "must be a whole number, not '1m'"
    }


def test_a_patch_gives_a_stock_runtime_its_options() -> None:
    fields = patch_2_2({"annotations": {ANNOTATION: "{run: program, procsPerNode: 4}"}})
    cluster = read(trainjob(COMMAND, **fields), runtime())
    assert (cluster.run, cluster.procs) == (Run.PROGRAM, 4)


@pytest.mark.parametrize(
    ("documents", "path", "rule"),
    [
        ([trainjob({}), runtime()], "spec.trainer.command", "is required, because the entry point"),
        (
            [trainjob(COMMAND, "other"), runtime()],
            "spec.runtimeRef.name",
            "'other' is not in any of the documents: give its file",
        ),
        ([trainjob(COMMAND, "")], "spec.runtimeRef.name", "is required: give its file, or one of headrace-distributed"),
        ([trainjob({**COMMAND, "numNodes": 0}), runtime()], "spec.trainer.numNodes", "must be 1 or more, not 0"),
        ([trainjob({**COMMAND, "numNodes": 10**6}), runtime()], "spec.trainer.numNodes", "must be 100000 or less"),
        (
            [trainjob({**COMMAND, "numProcPerNode": "many"}), runtime()],
            "spec.trainer.numProcPerNode",
            "must be a number or one of auto",
        ),
        (
            [trainjob({**COMMAND, "numProcPerNode": 0}), runtime()],
            "spec.trainer.numProcPerNode",
            "must be 1 or more, not 0",
        ),
        (
            [trainjob({**COMMAND, "env": [*env(B="1"), {"name": "C", "value": 1}]}), runtime(env=env(A="1", B="0"))],
            "spec.trainer.env[1].value",
            "must be text, not 1",
        ),
        (
            [trainjob({**COMMAND, "env": env(FLUX_QUEUE_POLICY="lifo")}), runtime(env=env(A="1"))],
            "spec.trainer.env[0].value",
            "FLUX_QUEUE_POLICY must be one of",
        ),
        ([trainjob({"command": "python"}), runtime()], "spec.trainer.command", "must be a list, not 'python'"),
        (
            [trainjob(COMMAND), runtime({"mpi": {}})],
            "ClusterTrainingRuntime.spec.mlPolicy.mpi",
            "is not supported by brokers",
        ),
        (
            [trainjob(COMMAND, **patch_2_2({})), {**runtime(), "apiVersion": "v2"}],
            "ClusterTrainingRuntime.apiVersion",
            "must be trainer",
        ),
        (
            [trainjob(COMMAND, podSpecOverrides=[{"targetJobs": [{"name": "nodes"}]}]), runtime()],
            "spec.podSpecOverrides[0].targetJobs[0].name",
            "'nodes' is not one of the Jobs of the runtime (dataset-initializer, node)",
        ),
        (
            [trainjob(COMMAND, **override_2_0(containers=[{"name": "main"}])), runtime()],
            "spec.podSpecOverrides[0].containers[0].name",
            "'main' is not one of the containers of node (node)",
        ),
        (
            [trainjob(COMMAND, **override_2_0(initContainers=[{"name": "main"}])), runtime()],
            "spec.podSpecOverrides[0].initContainers[0].name",
            "'main' is not one of the initContainers of node, which has none",
        ),
    ],
)
def test_what_breaks_a_rule_is_told_of_its_field(documents: list[Document], path: str, rule: str) -> None:
    found = problems(*documents)
    assert list(found) == [path]
    assert found[path].startswith(rule)
