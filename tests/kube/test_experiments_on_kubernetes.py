"""`headrace experiment run` with a Kubernetes target: MiniClusters are made, reused and removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from kubecluster.cluster import Cluster
from patience import until
from peers import Trainer
from running_operator import MiniClusters

from sizes import limit

HEADRACE = os.path.join(os.path.dirname(sys.executable), "headrace")


def run(cluster: Cluster, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "e.yaml").write_text(text)
    return subprocess.run(
        [HEADRACE, "experiment", "run", "e.yaml", "--out", "results"],
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=limit(300),
        check=False,
    )


def kept(folder: Path) -> dict[str, Any]:
    """The results of all runs, by CELL/NUMBER."""
    paths = (folder / "results").glob("runs/*/*/result.json")
    return {f"{path.parent.parent.name}/{path.parent.name}": json.loads(path.read_text()) for path in paths}


def test_cells_share_a_minicluster_of_their_size_and_a_cluster_that_is_gone_stops_no_other(
    cluster: Cluster, miniclusters: MiniClusters, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("input {{size}}\n")
    done = run(
        cluster,
        tmp_path,
        f"""
targets:
  kube: {{type: kubernetes, namespace: {miniclusters.namespace}}}
  gone: {{type: kubernetes, context: absent}}
matrix: {{size: [1, 2]}}
jobs:
  say:
    image: local/busybox:1
    command: 'cat in.txt; echo "loop 2.5"; mkdir -p sub; hostname > sub/host.dat; test "$X" = 1'
    environment: {{X: 1}}
    files: [{{template: in.txt}}, {{out: 'sub/*.dat'}}]
    metrics: {{loop: {{regex: 'loop ([0-9.]+)'}}}}
    repeats: 2
  fails: {{image: local/busybox:1, command: 'echo no >&2; exit 7'}}
  absent: {{image: local/absent:1, command: 'true', size: 1}}
""",
    )
    assert done.returncode == 1
    assert "target gone: " in done.stderr and "no context 'absent'" in done.stderr, done.stderr
    assert "image local/absent:1 of container" in done.stderr and "(1 run was not started)" in done.stderr, done.stderr
    found = kept(tmp_path)
    assert {name: result["state"] for name, result in sorted(found.items())} == {
        "fails-1-kube/1": "failed",
        "fails-2-kube/1": "failed",
        "say-1-kube/1": "completed",
        "say-1-kube/2": "completed",
        "say-2-kube/1": "completed",
        "say-2-kube/2": "completed",
    }, (done.stderr, found)
    assert found["fails-1-kube/1"]["exit"] == 7
    for number in (1, 2):
        folder = tmp_path / f"results/runs/say-2-kube/{number}"
        assert (folder / "stdout").read_text() == "input 2\nloop 2.5\n" * 2
        hosts = found[f"say-2-kube/{number}"]["nodes"]
        assert (folder / "sub/host.dat").read_text().strip() == hosts.replace("[0-1]", "0")
    first = min((one for one in found.values() if one["size"] == 2), key=lambda one: one["position"])
    assert list(first["phases"]) == ["created", "scheduled", "pulled", "ready", "program", "output", "ended"]
    assert miniclusters.get("minicluster")["items"] == []
    facts = json.loads((tmp_path / "results/sessions/1.json").read_text())["targets"]["kube"]["facts"]
    assert facts["version"].startswith("v1.") and [one["name"] for one in facts["nodes"]] == ["node-0", "node-1"]
    assert any("sha256:" in digest for digest in facts["images"].values())


def test_objects_of_a_manifest_are_created_timed_and_deleted_for_each_run(
    cluster: Cluster, miniclusters: MiniClusters, tmp_path: Path
) -> None:
    done = run(
        cluster,
        tmp_path,
        f"""
targets: {{kube: {{type: kubernetes, namespace: {miniclusters.namespace}}}}}
matrix: {{size: [1]}}
parameters: {{code: [0, 4]}}
jobs:
  job:
    repeats: 1
    metrics: {{loop: {{regex: 'loop (.*)', required: false}}}}
    manifest:
      apiVersion: batch/v1
      kind: Job
      metadata: {{name: any}}
      spec:
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: local/busybox:1
              command: [sh, -c, "echo loop 2.5; sleep 1; exit {{{{code}}}}"]
""",
    )
    assert done.returncode == 1
    found = {one["parameters"]["code"]: one for one in kept(tmp_path).values()}
    good, bad = found[0], found[4]
    assert (good["state"], good["exit"], good["metrics"]) == ("completed", 0, {"loop": 2.5}), (good, done.stderr)
    assert list(good["phases"]) == ["created", "scheduled", "pulled", "program", "output", "ended", "deleted"]
    assert list(good["phases"].values())[3:] == sorted(list(good["phases"].values())[3:])
    assert good["nodes"] in ("node-0", "node-1")
    assert (bad["state"], bad["exit"], bad["reason"]) == ("failed", 4, "exit 4")
    assert miniclusters.get("job")["items"] == []


def test_a_run_that_is_killed_leaves_no_minicluster(
    cluster: Cluster, miniclusters: MiniClusters, tmp_path: Path
) -> None:
    (tmp_path / "e.yaml").write_text("""
matrix: {size: [1]}
jobs: {wait: {image: local/busybox:1, command: sleep 3600}}
""")
    process = subprocess.Popen(
        [HEADRACE, "experiment", "run", "e.yaml", "--target", "kubernetes", "--out", "results"],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(kubeconfig(cluster, miniclusters.namespace, tmp_path))},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: any(one.get("status", {}).get("phase") == "Running" for one in all_of(miniclusters)))
    finally:
        process.kill()
        process.wait()
    until(lambda: not all_of(miniclusters))


def all_of(miniclusters: MiniClusters) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = miniclusters.get("minicluster")["items"]
    return found


def kubeconfig(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """The cluster's kubeconfig with a namespace in its context."""
    document = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    (folder / "kubeconfig").write_text(yaml.safe_dump(document))
    return folder / "kubeconfig"


def test_jobsets_and_trainjobs_of_a_manifest_end_as_their_controllers_say(
    cluster: Cluster, trainer: Trainer, namespace: str, tmp_path: Path
) -> None:
    pod = {
        "restartPolicy": "Never",
        "containers": [
            {"name": "node", "image": "local/busybox:1", "command": ["sh", "-c", "echo loop 2.5; exit {{code}}"]}
        ],
    }
    job = {"name": "node", "replicas": 1, "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "any"},
        "spec": {"replicatedJobs": [job]},
    }
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {
                "spec": {"replicatedJobs": [{**job, "template": {"metadata": {"labels": step}, **job["template"]}}]}
            },
        },
    }
    command = ["sh", "-c", "echo loop 3.5; exit {{code}}"]
    trainjob = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "any"},
        "spec": {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"command": command}},
    }
    trainer.apply(runtime)
    metrics = {"loop": {"regex": "loop (.*)", "required": False}}
    jobs = {
        name: {"manifest": manifest, "metrics": metrics, "repeats": 1}
        for name, manifest in (("jobset", jobset), ("trainjob", trainjob))
    }
    targets = {"kube": {"type": "kubernetes", "namespace": namespace}}
    experiment = {"targets": targets, "matrix": {"size": [1]}, "parameters": {"code": [0, 4]}, "jobs": jobs}
    done = run(cluster, tmp_path, yaml.safe_dump(experiment))
    assert done.returncode == 1
    assert "trainjob" in str(kept(tmp_path)), done.stderr
    found = {(one["job"], one["parameters"]["code"]): one for one in kept(tmp_path).values()}
    for name, loop in (("jobset", 2.5), ("trainjob", 3.5)):
        good, bad = found[name, 0], found[name, 4]
        assert (good["state"], good["exit"], good["metrics"]) == ("completed", 0, {"loop": loop}), (good, done.stderr)
        assert list(good["phases"]) == ["created", "scheduled", "pulled", "program", "output", "ended", "deleted"]
        assert (bad["state"], bad["exit"]) == ("failed", 4), bad
    kinds = "jobset,trainjob,job"
    assert json.loads(cluster.kubectl("-n", namespace, "get", kinds, "-o", "json"))["items"] == []
