"""JobSets whose Jobs are clusters, under JobSet's own controller and webhooks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from foreign_sets import JOBSETS, Sets, cluster_id, labelled, replicated
from patience import until

pytestmark = pytest.mark.soak

ATTEMPT = {
    "name": "ATTEMPT",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}},
}


def test_each_replica_is_a_cluster_with_a_key_of_its_own(sets: Sets, image: Callable[[str], str]) -> None:
    ranks = replicated("node", image("debian"), ["flux", "getattr", "rank"], replicas=2)
    sets.jobset("ranks", labelled(ranks))
    jobs = [sets.job(f"ranks-node-{index}") for index in range(2)]
    secrets = [sets.secret(job) for job in jobs]
    sets.condition(JOBSETS, "ranks", "Completed")
    for index in range(2):
        assert sorted(sets.log(f"ranks-node-{index}").splitlines()) == ["0", "1"]
    assert len({cluster_id(job) for job in jobs}) == 2
    for key in ("curve.cert", "channel.cert"):
        assert secrets[0][key] != secrets[1][key]


def test_a_command_that_fails_fails_its_jobset(sets: Sets, image: Callable[[str], str]) -> None:
    sets.jobset("fails", labelled(replicated("node", image("debian"), ["sh", "-c", "exit 3"])))
    sets.condition(JOBSETS, "fails", "Failed")
    assert sets.exit_code("fails-node-0") == 3


def test_a_job_that_cannot_be_a_cluster_is_told_at_its_jobset(sets: Sets) -> None:
    wrong = labelled(replicated("node", "local/busybox:1", ["true"]), "{runn: node}")
    sets.jobset("wrong", wrong)
    rule = "metadata.annotations.flux-framework.org/headrace-options.runn: is not an option; did you mean run?"
    until(lambda: any(rule in text for text in sets.events("wrong")))


def test_each_attempt_is_a_new_cluster(sets: Sets, image: Callable[[str], str]) -> None:
    command = ["sh", "-c", "exit $((ATTEMPT == 0))"]
    job = labelled(replicated("node", image("debian"), command, env=[ATTEMPT]))
    sets.jobset("again", job, failurePolicy={"maxRestarts": 1})
    first = sets.job("again-node-0")
    key = sets.secret(first)["curve.cert"]
    second = sets.job("again-node-0", lambda job: cluster_id(job) != cluster_id(first))
    assert sets.secret(second)["curve.cert"] != key
    sets.condition(JOBSETS, "again", "Completed")
    assert sets.get(JOBSETS, "again")["status"]["restarts"] == 1


def test_a_cluster_waits_for_the_jobs_that_it_depends_on(sets: Sets, image: Callable[[str], str]) -> None:
    before = replicated("before", "local/busybox:1", ["true"], 1)
    after = replicated("after", image("debian"), ["flux", "getattr", "size"])
    depends = [{"name": "before", "status": "Complete"}]
    sets.jobset("row", before, {**labelled(after), "dependsOn": depends})
    plain = sets.job("row-before-0")
    assert not cluster_id(plain)
    assert plain["spec"]["template"]["spec"].get("initContainers", []) == []
    sets.condition(JOBSETS, "row", "Completed")
    assert sets.log("row-after-0").split() == ["2", "2"]


def test_without_hostnames_of_jobset_the_cluster_has_its_own(sets: Sets, image: Callable[[str], str]) -> None:
    job = labelled(replicated("node", image("debian"), ["flux", "getattr", "hostlist"]))
    sets.jobset("nameless", job, network={"enableDNSHostnames": False})
    pod = sets.job("nameless-node-0")["spec"]["template"]["spec"]
    assert pod["subdomain"] == f"headrace-{cluster_id(sets.job('nameless-node-0'))}"
    sets.condition(JOBSETS, "nameless", "Completed")
    assert sets.log("nameless-node-0").split() == ["nameless-node-0-[0-1]"] * 2


def test_a_suspended_jobset_goes_on_as_the_same_cluster(sets: Sets, image: Callable[[str], str]) -> None:
    """It is suspended before it has run, and again while it runs."""
    until_told = "until [ -e /tmp/go ]; do sleep .1; done; flux getattr size"
    held = replicated("node", image("debian"), ["sh", "-c", until_told])
    sets.jobset("halts", labelled(held, "{run: program}"), suspend=True)
    job = sets.job("halts-node-0")
    assert sets.pods("halts-node-0") == []
    for _ in range(2):
        sets.patch(JOBSETS, "halts", {"suspend": False})
        sets.job("halts-node-0", lambda job: job["status"].get("ready") == 2)
        key = sets.secret(job)["curve.cert"]
        sets.patch(JOBSETS, "halts", {"suspend": True})
        sets.job("halts-node-0", lambda job: not job["status"].get("active"))
    sets.patch(JOBSETS, "halts", {"suspend": False})
    again = sets.job("halts-node-0", lambda job: job["status"].get("ready") == 2)
    assert cluster_id(again) == cluster_id(job)
    assert sets.secret(again)["curve.cert"] == key
    sets.inside("halts-node-0", "touch", "/tmp/go")
    sets.condition(JOBSETS, "halts", "Completed")
    assert sets.log("halts-node-0").strip() == "2"
