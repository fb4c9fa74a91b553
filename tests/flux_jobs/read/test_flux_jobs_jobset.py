"""JobSets: which of their Jobs is the cluster, what it is called, and what is left of the rest."""

from __future__ import annotations

from flux_jobs.read.samples import Document, container, job_spec, jobset, problems, read
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE, Part

TEMPLATE = {"template": {"spec": job_spec(size=3)}}


def marked(command: str = "marked") -> Document:
    template = {"metadata": {"labels": {LABEL_KEY: LABEL_VALUE}}}
    return {"template": {**template, "spec": job_spec(pod={"containers": [container(command=[command])]})}}


def test_the_only_job_is_the_cluster_and_has_the_name_that_the_jobset_gives_it() -> None:
    cluster = read(jobset(TEMPLATE))
    assert (cluster.kind, cluster.name, cluster.parts) == ("JobSet", "set", (Part("set-part0-0", 3, 3),))
    assert cluster.others == ()


def test_of_several_jobs_the_marked_one_is_the_cluster() -> None:
    network = {"enableDNSHostnames": True}
    waits = {"dependsOn": [{"name": "part0", "status": "Complete"}]}
    cluster = read(jobset(TEMPLATE, {**marked(), **waits}, network=network))
    assert cluster.argv == ("marked",)
    assert cluster.parts[0].job == "set-part1-0"
    assert cluster.others == ("spec.replicatedJobs[0] (part0)", "spec.network", "spec.replicatedJobs[1].dependsOn")


def test_without_a_mark_it_is_the_coordinator() -> None:
    cluster = read(jobset(TEMPLATE, TEMPLATE, coordinator={"replicatedJob": "part1"}))
    assert cluster.parts[0].job == "set-part1-0"


def test_a_choice_that_is_open_is_refused_with_the_names() -> None:
    (found,) = problems(jobset(TEMPLATE, TEMPLATE)).items()
    assert found[0] == "spec.replicatedJobs"
    assert found[1].startswith(f"none of its 2 Jobs has the label {LABEL_KEY}: {LABEL_VALUE}")
    assert found[1].endswith("part0, part1")
    assert problems(jobset(marked(), marked()))["spec.replicatedJobs"].startswith("2 of its 2 Jobs have the label")


def test_of_several_replicas_the_first_is_the_cluster() -> None:
    cluster = read(jobset({**TEMPLATE, "replicas": 3}))
    assert cluster.parts == (Part("set-part0-0", 3, 3),)
    assert cluster.others == ("spec.replicatedJobs[0].replicas (the first of 3 Jobs)",)
    assert problems(jobset({**TEMPLATE, "replicas": 0})) == {
        "spec.replicatedJobs[0].replicas": "must be 1 or more, not 0"
    }


def test_problems_of_its_job_have_their_path_in_the_jobset() -> None:
    wrong = {"template": {"spec": job_spec(completions=5)}}
    assert list(problems(jobset(wrong))) == ["spec.replicatedJobs[0].template.spec.completions"]
    assert problems(jobset())["spec.replicatedJobs"] == "must have at least one Job"
    long = {**TEMPLATE, "name": "p" * 60}
    assert problems(jobset(long))["metadata.name"].startswith("is too long: the last host, set-ppp")


def test_a_name_that_no_host_can_have_is_told_of_once_where_it_stands() -> None:
    rule = "cannot name hosts: use lower case letters, digits and '-', and begin and end with a letter or digit"
    named = {**jobset(TEMPLATE), "metadata": {"name": "My_Set"}}
    assert problems(named) == {"metadata.name": f"'My_Set' {rule}"}
    assert problems(jobset({**TEMPLATE, "name": "My_Job"})) == {"spec.replicatedJobs[0].name": f"'My_Job' {rule}"}
