"""The runtimes of the SDK: those of Headrace, files, documents, and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow.trainer.types import types
from training_samples import own

from headrace.kubeflow.catalog import Catalog, runtime_of


def test_the_runtimes_of_headrace_are_there_and_the_sdks_default() -> None:
    found = [runtime_of(document) for document in Catalog(())]
    assert [one.name for one in found] == ["torch-distributed", "headrace-distributed", "headrace-torch"]
    assert [one.trainer.command for one in found] == [("python",), ("python",), ("torchrun",)]
    assert [one.trainer.framework for one in found] == ["torch", "headrace", "torch"]
    assert {one.kind for one in found} == {types.RuntimeKind.CLUSTER_TRAINING_RUNTIME}
    assert Catalog(()).document(None)["metadata"]["name"] == "torch-distributed"


def test_runtimes_may_be_documents_and_files(tmp_path: Path) -> None:
    path = tmp_path / "runtimes.yaml"
    documents = [own("one"), {"kind": "ConfigMap"}, own("torch-distributed")]
    path.write_text(yaml.safe_dump_all(documents))
    catalog = Catalog([path, own("two", torch=None)])
    names = {runtime_of(document).name for document in catalog}
    assert names == {"torch-distributed", "headrace-distributed", "headrace-torch", "one", "two"}
    found = runtime_of(catalog.document("one"))
    assert (found.trainer.device, found.trainer.device_count, found.trainer.num_nodes) == ("gpu", "6", 3)
    assert found.trainer.command == ("torchrun",)
    assert runtime_of(catalog.document("two")).trainer.command == ("python",)
    assert runtime_of(catalog.document(found)) == found
    assert runtime_of(catalog.document(None)).trainer.num_nodes == 3


@pytest.mark.parametrize("name", ["missing", "", 3, object()])
def test_a_runtime_that_is_not_there_is_named_with_those_that_are(name: Any) -> None:
    with pytest.raises(ValueError, match="there are torch-distributed, headrace-distributed, headrace-torch"):
        Catalog(()).document(name)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", "runtimes: FILE: "),
        ("kind: Job", "runtimes: FILE: has no ClusterTrainingRuntime or TrainingRuntime"),
        ("kind: TrainingRuntime", "TrainingRuntime.spec.template.spec.replicatedJobs: must have a Job"),
    ],
)
def test_what_is_no_runtime_is_refused(text: str, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        Catalog([str(path)])
    assert rule.replace("FILE", str(path)) in str(caught.value)


def test_files_and_documents_that_are_not_there_are_named() -> None:
    with pytest.raises(ValueError, match=r"runtimes: /missing\.yaml: No such file or directory"):
        Catalog(["/missing.yaml"])
    with pytest.raises(ValueError, match="must be a ClusterTrainingRuntime or TrainingRuntime"):
        Catalog([{"kind": "Job"}])
    nameless = own("own")
    del nameless["metadata"]["name"]
    with pytest.raises(ValueError, match=r"ClusterTrainingRuntime.metadata.name: is required"):
        Catalog([nameless])
