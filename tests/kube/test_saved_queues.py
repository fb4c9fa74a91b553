"""`archive.path`: the queue of a MiniCluster outlives its pods, and goes on in one of another size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import TIMEOUT, until
from running_operator import MiniClusters, RunningOperator


class Kept:
    """A MiniCluster whose archive is in a folder of the node, which outlives it."""

    def __init__(self, miniclusters: MiniClusters, folder: str) -> None:
        self.its = miniclusters
        self._volumes = {"state": {"hostPath": folder, "path": "/state"}}

    def apply(self, name: str, size: int) -> None:
        container = {"image": "local/busybox:1", "volumes": self._volumes}
        self.its.apply(name, size=size, interactive=True, archive={"path": "/state/a.tgz"}, containers=[container])

    def flux(self, name: str, *words: str) -> str:
        """A flux command in the lead's container."""
        return self.its.flux(name, *words)


@pytest.fixture
def kept(miniclusters: MiniClusters, tmp_path: Path) -> Kept:
    # The nodes see the files of this machine.
    return Kept(miniclusters, str(tmp_path))


def filled(kept: Kept, name: str) -> dict[str, str]:
    """A MiniCluster of two pods with a job that is over, one that is held, and a key; the ids of the jobs."""
    kept.apply(name, 2)
    kept.its.phase(name, "Running")
    kept.flux(name, "resource", "list")
    over = kept.flux(name, "submit", "--wait", "-N2", "sh", "-c", "echo from $FLUX_JOB_SIZE tasks").strip()
    held = kept.flux(name, "submit", "--urgency=hold", "-N2", "sh", "-c", "echo went on").strip()
    kept.flux(name, "kvs", "put", "my.key=kept")
    return {"over": over, "held": held}


def goes_on(kept: Kept, name: str, ids: dict[str, str], nodes: int) -> None:
    assert kept.flux(name, "resource", "list", "-no", "{nnodes}", "-s", "all").strip() == str(nodes)
    assert kept.flux(name, "kvs", "get", "my.key") == "kept\n"
    assert kept.flux(name, "job", "attach", ids["over"]).splitlines() == ["from 2 tasks"] * 2
    kept.flux(name, "job", "urgency", ids["held"], "default")
    assert kept.flux(name, "job", "attach", ids["held"]).splitlines() == ["went on"] * 2


def test_the_queue_of_a_deleted_minicluster_goes_on_in_a_larger_one(kept: Kept) -> None:
    ids = filled(kept, "small")
    kept.its.kubectl("delete", "mc", "small", "--cascade=foreground", TIMEOUT)
    kept.apply("large", 3)
    kept.its.phase("large", "Running")
    goes_on(kept, "large", ids, 3)


def test_a_suspended_minicluster_holds_no_pods_and_goes_on_when_it_is_resumed(kept: Kept) -> None:
    ids = filled(kept, "rests")
    suspend = {"spec": {"suspend": True}}
    kept.its.kubectl("patch", "mc", "rests", "--type=merge", "-p", json.dumps(suspend))
    kept.its.phase("rests", "Suspended")
    until(lambda: not kept.its.pods("rests"))
    suspend["spec"]["suspend"] = False
    kept.its.kubectl("patch", "mc", "rests", "--type=merge", "-p", json.dumps(suspend))
    kept.its.phase("rests", "Running")
    goes_on(kept, "rests", ids, 2)


def test_a_minicluster_whose_queue_cannot_be_saved_is_not_suspended(kept: Kept, tmp_path: Path) -> None:
    volumes = {"state": {"hostPath": str(tmp_path), "path": "/state"}}
    container = {"image": "local/busybox:1", "volumes": volumes}
    path = "/state/later/a.tgz"
    kept.its.apply("full", size=1, interactive=True, archive={"path": path}, containers=[container])
    kept.its.phase("full", "Running")
    kept.its.kubectl("patch", "mc", "full", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    reason = kept.its.reason("full", lambda text: "cannot be saved" in text)
    assert reason.startswith(f"the queue cannot be saved to {path}, so it is not suspended: ")
    assert kept.its.status("full")["phase"] == "Running" and len(kept.its.pods("full")) == 1
    assert kept.its.events("full")[-1] == "NotSaved"
    # A deletion tries once more, and the lead writes the archive when it ends.
    (tmp_path / "later").mkdir()
    kept.its.kubectl("delete", "mc", "full", "--cascade=foreground", TIMEOUT)
    assert (tmp_path / "later/a.tgz").stat().st_size > 0


def test_a_minicluster_can_be_deleted_where_no_operator_runs_any_more(kept: Kept, operator: RunningOperator) -> None:
    filled(kept, "left")
    operator.stop()
    try:
        headrace = [sys.executable, "-c", "from headrace.cli.main import headrace; raise SystemExit(headrace())"]
        where = ["-n", kept.its.namespace, "--kubeconfig", str(kept.its.cluster.kubeconfig)]
        waits = subprocess.Popen([*headrace, "mini", "delete", *where, "left"], stderr=subprocess.PIPE, text=True)
        assert waits.stderr is not None
        assert "if no operator runs: headrace mini delete --without-saving left" in waits.stderr.readline()
        done = subprocess.run([*headrace, "mini", "delete", *where, "--without-saving", "left"], check=False)
        assert (done.returncode, waits.wait()) == (0, 0)
        assert not kept.its.get("minicluster")["items"] and not kept.its.pods("left")
    finally:
        operator.start()
