"""The file of a Job, JobSet or TrainJob: which document is read, and that no document whatever leads to a traceback."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flux_jobs.read.samples import Document, container, job, job_spec, jobset, problems, runtime, trainjob
from headrace.flux_jobs.read.cluster import ForeignCluster
from headrace.flux_jobs.read.load import load, load_runtime
from headrace.minicluster.api.fields import InvalidMiniCluster

OPTIONS = "{run: node, procsPerNode: 2, queuePolicy: easy, maxSize: 4, sharedMemory: 1Gi}"
VARIABLES = [
    {"name": "A", "value": "$(B)"},
    {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
FULL = {
    "containers": [
        container(args=["x"], env=VARIABLES, ports=[{"containerPort": 80}], resources={"limits": {"cpu": 2}}),
    ],
    "initContainers": [{"name": "init", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    "volumes": [{"name": "data", "emptyDir": {}}],
}
OVERRIDES = {
    "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "containers": [{"name": "node", "env": VARIABLES}]}],
    "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "metadata": {"labels": {"a": "b"}}, "spec": {}}],
    "runtimePatches": [
        {
            "trainingRuntimeSpec": {
                "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"metadata": {"labels": {}}}}]}}
            }
        }
    ],
}
TRAINER = {"command": ["a"], "numNodes": 2, "numProcPerNode": "auto", "resourcesPerNode": {"limits": {"gpu": "1"}}}
SAMPLES = [
    [job(OPTIONS, pod=FULL, successPolicy={"rules": [{"succeededIndexes": "0"}]})],
    [jobset({"template": {"spec": job_spec(pod=FULL)}}, coordinator={"replicatedJob": "part0"})],
    [trainjob(TRAINER, **OVERRIDES), runtime({"numNodes": 2, "torch": {}}, env=VARIABLES)],
]
ODD: list[Any] = [
    None, True, 0, -1, 1, 2**31, 2**63, 1.5, float("nan"), "", "x", "\0", "$(", "{{", "8050",
    [], {}, [None], [[]], [{}], {"": None}, {"name": []}, {"a": {"b": []}}, "{run: [}", "- a", "a" * 70,
]  # fmt: skip


# What no YAML text can have.
ODDER = [*ODD, 1 << 20_000, "\ud800"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """All (container, key) of a document."""
    found = []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        found += [(value, key), *places(item)]
    return found


def mutated(documents: list[Document], chance: random.Random, odd: list[Any] = ODD) -> list[Document]:
    """Documents with some of their values replaced, removed, doubled or moved."""
    changed = copy.deepcopy(documents)
    for _ in range(chance.randint(1, 4)):
        where = places(changed)
        into, key = chance.choice(where)
        kind = chance.randrange(4)
        if kind == 0 and isinstance(into, dict):
            del into[key]
        elif kind == 1 and isinstance(into, list):
            into.insert(key, copy.deepcopy(into[key]))
        elif kind == 2:
            other, other_key = chance.choice(where)
            into[key] = copy.deepcopy(other[other_key])
        else:
            into[key] = copy.deepcopy(chance.choice(odd))
    return changed


def outcome(documents: list[Any]) -> ForeignCluster | list[str]:
    """The cluster of parsed documents, or the problems of a refusal, each with a rule."""
    from headrace.flux_jobs.read import load as module

    original = module.documents
    module.documents = lambda _text: (documents, [])  # type: ignore[assignment]
    try:
        return load("").cluster
    except InvalidMiniCluster as exc:
        assert exc.problems
        assert all(problem.rule for problem in exc.problems)
        return [str(problem) for problem in exc.problems]
    finally:
        module.documents = original


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample[0]["kind"])
def test_the_samples_are_taken(sample: list[Document]) -> None:
    assert isinstance(outcome(sample), ForeignCluster)


@given(st.sampled_from(SAMPLES), st.integers(0, 2**32))
def test_a_mutated_document_is_a_cluster_or_refused(sample: list[Document], seed: int) -> None:
    found = outcome(mutated(sample, random.Random(seed), ODDER))
    if isinstance(found, ForeignCluster):
        assert found.size >= 1
        assert found.interactive or found.argv[0]
        for word in found.words(found.variables(lambda _source: "x")):
            assert "\0" not in word.encode().decode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["Job", "JobSet", "TrainJob"]), JSON, JSON)
def test_any_document_of_a_kind_is_refused_in_words(kind: str, metadata: Any, spec: Any) -> None:
    assert isinstance(outcome([{"kind": kind, "metadata": metadata, "spec": spec}]), list)


def test_one_document_of_a_file_is_the_cluster_and_the_others_are_named() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}}
    source = load(yaml.safe_dump_all([config, job()]))
    assert (source.cluster.name, source.others) == ("hello", ["ConfigMap/data"])
    two = problems(job(), jobset({"template": {"spec": job_spec()}}))
    assert two[""] == "a file must hold one Job or JobSet or TrainJob, this one holds 2 of them"
    assert problems(config)[""].endswith("this one holds none (its kinds: ConfigMap)")
    assert "the file is empty" in problems()[""]


def test_a_runtime_may_be_apart_and_then_counts() -> None:
    text = yaml.safe_dump(trainjob({}, "of-the-cluster"))
    own = load_runtime(yaml.safe_dump(runtime(command=["own"])))
    assert load(text, own).cluster.argv == ("own",)
    with pytest.raises(InvalidMiniCluster, match="must be TrainJob for a runtime to apply, not Job"):
        load(yaml.safe_dump(job()), own)
    with pytest.raises(InvalidMiniCluster, match="this one holds none"):
        load_runtime(text)


def test_deep_documents_are_refused_or_read() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    for place in ("metadata", "spec", "apiVersion"):
        assert isinstance(outcome([{**job(), place: deep}]), list)
    assert isinstance(outcome([{**job(), "status": deep}]), ForeignCluster)
    assert isinstance(outcome([trainjob({"command": ["a"]}), {**runtime(), "status": deep}]), ForeignCluster)
