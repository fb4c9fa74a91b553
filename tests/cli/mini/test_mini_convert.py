"""`headrace mini convert`: a MiniCluster that `validate` takes on standard output, what is lost on standard error."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.main import headrace

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: hello}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      hostNetwork: true
      containers:
      - {name: main, image: "debian:12", command: [echo, a b]}
"""
TRAIN = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: elsewhere}
  trainer: {numNodes: 2, command: [torchrun, train.py]}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
"""
RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: own}
spec:
  mlPolicy: {numNodes: 5}
  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node}]}}}}}]}}
"""


def test_a_job_is_printed_as_a_minicluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, made = tmp_path / "job.yaml", tmp_path / "cluster.yaml"
    path.write_text(JOB)
    assert headrace(["mini", "convert", str(path)]) == 0
    printed = capsys.readouterr()
    told = "not converted (a MiniCluster has no equivalent): spec.template.spec.hostNetwork"
    assert printed.err == f"{path}: {told}\n"
    made.write_text(printed.out)
    assert headrace(["mini", "validate", str(made)]) == 0
    assert "MiniCluster hello is valid (size 2, tasks 2)" in capsys.readouterr().out


def test_the_runtime_of_a_trainjob_is_given_by_name_or_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, own = tmp_path / "train.yaml", tmp_path / "runtime.yaml"
    path.write_text(TRAIN)
    own.write_text(RUNTIME)
    assert headrace(["mini", "convert", str(path)]) == 1
    assert "spec.runtimeRef.name: 'elsewhere' is not in any of the documents: give its file" in capsys.readouterr().err
    assert headrace(["mini", "convert", "--runtime", "headrace-torch", str(path)]) == 0
    printed = capsys.readouterr()
    assert "tasks: 0" in printed.out and "pytorch" in printed.out
    assert printed.err == f"{path}: not converted (a MiniCluster has no equivalent): Secret/token\n"
    assert headrace(["mini", "convert", f"--runtime={own}", str(path)]) == 0
    assert "torchrun train.py" in capsys.readouterr().out
    assert headrace(["mini", "convert", "--runtime=nowhere", str(path)]) == 1
    known = "headrace-distributed, headrace-torch"
    assert f"--runtime=nowhere: no such file or built-in runtime ({known}" in capsys.readouterr().err
    assert headrace(["mini", "convert", f"--runtime={path}", str(path)]) == 1
    assert "a runtime's file must hold one" in capsys.readouterr().err
