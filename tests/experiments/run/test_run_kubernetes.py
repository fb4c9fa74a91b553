"""What runs on Kubernetes are made of: MiniClusters, jobspecs for pods, objects of manifests, archives of outputs."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from experiments.run.cells import cell
from headrace.experiments.run.kubernetes import _COLLECT, _made, in_pod, minicluster
from headrace.experiments.run.manifests import RUN, named
from headrace.formats.spec import jobspec_build
from headrace.k8s.objects.kinds import MINICLUSTERS, PODS, Kind
from headrace.k8s.runtime.api import ApiError


def archived(home: Path, *patterns: str, own: str = "") -> dict[str, bytes]:
    done = subprocess.run([sys.executable, "-c", _COLLECT, str(home), own, *patterns], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in files.items() if file}


def test_outputs_come_back_in_an_archive_and_the_runs_own_folder_is_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    (home / "sub/a.dat").write_text("a")
    (home / "link.dat").symlink_to("sub/a.dat")
    (home / "other").write_text("b")
    assert archived(home, "**/*.dat") == {"link.dat": b"a", "sub/a.dat": b"a"}
    assert archived(home, own="own") == {} and not home.exists()
    assert archived(home, "*.dat", own="own") == {}


def test_a_minicluster_waits_for_jobs_with_the_fields_of_its_file() -> None:
    one = cell(size=3)
    fields = {"flux": {"logLevel": 7}, "containers": [{"command": "unused", "pullAlways": True}, {"image": "side:1"}]}
    one = msgspec.structs.replace(
        one, machine="big", job=msgspec.structs.replace(one.job, image="app:1", minicluster=fields)
    )
    spec = minicluster(one, "x-1", "x", 3, selects_machine=True)["spec"]
    assert (spec["size"], spec["interactive"], spec["flux"]) == (3, True, {"logLevel": 7})
    assert spec["containers"] == [{"pullAlways": True, "image": "app:1", "runFlux": True}, {"image": "side:1"}]
    assert spec["pod"] == {"nodeSelector": {"node.kubernetes.io/instance-type": "big"}}
    assert "pod" not in minicluster(one, "x-1", "x", 3, selects_machine=False)["spec"]


def test_a_jobspec_for_pods_has_their_environment_and_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/in put").write_text("1")
    made = jobspec_build.from_command(["app", "x y"], environment={"A": "mine"}, rlimits={"nofile": 5}, cwd="/home")
    found = in_pod(made, {"A": "theirs", "PATH": "/bin"}, "/tmp/run", tmp_path)
    system = found["attributes"]["system"]
    assert system["environment"] == {"A": "mine", "PATH": "/bin"}
    assert "rlimit" not in system["shell"]["options"] and list(system["files"]) == ["inputs/data/in put"]
    assert found["tasks"][0]["command"][-3:] == ["/tmp/run", "app", "x y"]
    assert "files" not in made["attributes"]["system"] and made["tasks"][0]["command"] == ["app", "x y"]


def test_inputs_that_are_too_large_for_a_jobspec_are_refused(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(ValueError, match="larger than 16 MiB: put them into the image or a volume"):
        in_pod(jobspec_build.from_command(["app"], environment={"A": "1"}), {}, "/tmp/run", tmp_path)


def test_each_run_of_a_manifest_has_its_name_and_labels_on_all_pods() -> None:
    pod = {"spec": {"containers": [{"name": "main"}]}}
    job = {"template": {"spec": {"template": pod}}}
    manifest = {"kind": "JobSet", "metadata": {"generateName": "a-"}, "spec": {"replicatedJobs": [job]}}
    made = named(manifest, "x-1-1", {"token": "x"})
    labels = {"token": "x", RUN: "x-1-1"}
    assert made["metadata"] == {"name": "x-1-1", "labels": labels}
    assert made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] == {"labels": labels}
    assert "metadata" not in pod


@pytest.mark.parametrize(
    ("kind", "text"), [(MINICLUSTERS, "headrace operator manifests"), (PODS, "^404 page not found$")]
)
def test_a_cluster_without_the_operator_is_named(kind: Kind, text: str) -> None:
    class Bare:
        async def list_objects(self, *_words: object) -> object:
            raise ApiError(404, "", "404 page not found")

    with pytest.raises(ApiError, match=text):
        asyncio.run(_made(Bare(), kind, "default", "token"))
