"""`headrace fluxqueue manifests`: what is printed, and by which installation of Headrace."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml

from headrace.cli.main import headrace
from headrace.programs.cluster_queue.install import Install
from headrace.programs.cluster_queue.package import PACKAGE


def printed(capsys: pytest.CaptureFixture[str], line: str) -> list[Any]:
    assert headrace(shlex.split(line)[1:]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_what_installs_the_queue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "headrace fluxqueue manifests") == PACKAGE.objects(Install())
    line = "headrace fluxqueue manifests --namespace ops --image a:1 --replicas 2 --failure-policy Ignore --strict"
    chosen = Install(namespace="ops", image="a:1", replicas=2, failure_policy="Ignore", strict=True)
    assert printed(capsys, line) == PACKAGE.objects(chosen)


# Runs a command where no packages are but those that each installation has (`dependencies` of pyproject.toml).
WITHOUT_EXTRAS = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("headrace", "zmq", "msgspec", "yaml", "_yaml", "tomli"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
from headrace.cli.main import headrace
raise SystemExit(headrace(sys.argv[1:]))
"""


def test_manifests_need_no_extra() -> None:
    def without_extras(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", WITHOUT_EXTRAS, *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    done = without_extras("fluxqueue", "manifests")
    assert done.returncode == 0 and list(yaml.safe_load_all(done.stdout)) == PACKAGE.objects(Install())
    assert without_extras("operator", "manifests").returncode == 0
    done = without_extras("fluxqueue", "run")
    assert done.returncode == 1 and "needs the extra kube (aiohttp is missing)" in done.stderr


def test_the_store_of_an_install(capsys: pytest.CaptureFixture[str]) -> None:
    line = "headrace fluxqueue manifests --store postgresql://me@db/jobs --store-secret db"
    assert printed(capsys, line) == PACKAGE.objects(Install(store="postgresql://me@db/jobs", store_secret="db"))
    line = "headrace fluxqueue manifests --store-claim disk"
    assert printed(capsys, line) == PACKAGE.objects(Install(store_claim="disk"))
    assert headrace(shlex.split(f"{line} --replicas 2")[1:]) == 1
    assert "can be the store of one process only, not of 2" in capsys.readouterr().err


def test_grpc_of_an_install(capsys: pytest.CaptureFixture[str]) -> None:
    line = "headrace fluxqueue manifests --grpc --grpc-queue large --grpc-secret own --grpc-client-secret theirs"
    chosen = Install(grpc=True, grpc_queue="large", grpc_secret="own", grpc_client_secret="theirs")
    assert printed(capsys, line) == PACKAGE.objects(chosen)
    assert headrace(shlex.split(f"{line} --replicas 2")[1:]) == 1
    assert "gRPC can be served by one process only, not by 2" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["store-secret", "store-claim", "grpc-queue", "grpc-secret", "grpc-client-secret"])
@pytest.mark.parametrize("name", ["A B", "Upper", "-x", "a/b", "x" * 254])
def test_what_is_no_name_is_not_printed(option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["fluxqueue", "manifests", "--grpc", f"--{option}={name}"]) == 2
    out, err = capsys.readouterr()
    assert f"argument --{option}: '{name}' is not a valid name: use a-z, 0-9" in err and not out
