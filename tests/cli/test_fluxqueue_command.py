"""`headrace fluxqueue run|manifests|history`: what its options give the queue, and what it says without a cluster."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from stored import life, opened

from headrace.cli.main import headrace
from headrace.fluxqueue import serve as serving_module
from headrace.fluxqueue.install import Install, objects
from headrace.fluxqueue.services.live_graph import Grpc
from headrace.fluxqueue.services.server import Tls
from headrace.fluxqueue.store.database import Address
from headrace.fluxqueue.store.writing import write
from headrace.kube.runtime.program import Serving

# What the program was told of its store, at each start.
stores: list[Address | None] = []
# What the last run was told of gRPC.
matching: list[Grpc | None] = []


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Serving]:
    found: list[Serving] = []
    matching.clear()

    async def record(serving: Serving, store: Address | None, grpc: Grpc | None) -> int:
        found.append(serving)
        stores.append(store)
        matching.append(grpc)
        return 0

    monkeypatch.setattr(serving_module, "serve", record)
    return found


def run(served: list[Serving], line: str) -> Serving:
    assert headrace(shlex.split(line)[1:]) == 0
    return served.pop()


def test_addresses_the_lease_and_the_cluster(served: list[Serving]) -> None:
    serving = run(served, "headrace fluxqueue run --metrics-bind :1 --health-bind :2 --lease-namespace ops")
    assert (serving.metrics_bind, serving.health_bind) == (":1", ":2")
    assert (serving.lease_namespace, serving.leader_elect) == ("ops", True)
    assert run(served, "headrace fluxqueue run --leader-elect").leader_elect is True
    assert run(served, "headrace fluxqueue run --no-leader-elect").leader_elect is False
    line = "headrace fluxqueue run --kubeconfig file --context other --log-format text --log-level debug"
    serving = run(served, line)
    assert (serving.kubeconfig, serving.context) == ("file", "other")


def test_the_webhook(served: list[Serving]) -> None:
    assert run(served, "headrace fluxqueue run --webhook-bind :9443 --no-webhook").webhook_bind == ""
    serving = run(served, "headrace fluxqueue run --webhook-bind :9443 --webhook-certificate /certificate")
    assert (serving.webhook_bind, serving.webhook_certificate) == (":9443", "/certificate")
    serving = run(served, "headrace fluxqueue run --webhook-bind 192.0.2.1:1 --webhook-address 192.0.2.1")
    assert serving.webhook_address == "192.0.2.1"


def test_grpc_on_the_live_graph(
    served: list[Serving],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run(served, "headrace fluxqueue run")
    run(served, "headrace fluxqueue run --grpc :4242")
    for name in ("crt", "key", "ca"):
        (tmp_path / name).write_text(name)
    line = (
        "headrace fluxqueue run --grpc :1 --grpc-queue large --grpc-tls-cert crt --grpc-tls-key key --grpc-client-ca ca"
    )
    run(served, line)
    plain, full = Grpc(address=":4242"), Grpc(address=":1", queue="large", tls=Tls(b"crt", b"key", b"ca"))
    assert matching == [None, plain, full]
    assert headrace(["fluxqueue", "run", "--grpc", ":1", "--grpc-tls-cert", "x"]) == 1
    assert "--grpc-tls-cert and --grpc-tls-key go together" in capsys.readouterr().err


def printed(capsys: pytest.CaptureFixture[str], line: str) -> list[Any]:
    assert headrace(shlex.split(line)[1:]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_what_installs_the_queue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "headrace fluxqueue manifests") == objects(Install())
    line = "headrace fluxqueue manifests --namespace ops --image a:1 --replicas 2 --failure-policy Ignore"
    chosen = Install(namespace="ops", image="a:1", replicas=2, failure_policy="Ignore")
    assert printed(capsys, line) == objects(chosen)


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
    assert (done.returncode, done.stderr) == (0, "") and list(yaml.safe_load_all(done.stdout)) == objects(Install())
    done = without_extras("operator", "manifests")
    assert (done.returncode, done.stderr) == (0, "")
    done = without_extras("fluxqueue", "run")
    assert done.returncode == 1 and "needs the extra kube (aiohttp is missing)" in done.stderr


def test_the_store_of_an_install(capsys: pytest.CaptureFixture[str]) -> None:
    line = "headrace fluxqueue manifests --store postgresql://me@db/jobs --store-secret db"
    assert printed(capsys, line) == objects(Install(store="postgresql://me@db/jobs", store_secret="db"))
    line = "headrace fluxqueue manifests --store-claim disk"
    assert printed(capsys, line) == objects(Install(store_claim="disk"))
    assert headrace(shlex.split(f"{line} --replicas 2")[1:]) == 1
    assert "is the store of one process, not of 2" in capsys.readouterr().err


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["fluxqueue", "run", "--kubeconfig", f"{tmp_path}/none"]) == 1
    assert f"no kubeconfig: {tmp_path}/none is not there" in capsys.readouterr().err


def test_the_store(served: list[Serving], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(served, "headrace fluxqueue run")
    assert stores.pop() is None
    run(served, f"headrace fluxqueue run --statedir {tmp_path}/state")
    assert stores.pop() == Address(f"sqlite:{tmp_path}/state/store.sqlite")
    assert (tmp_path / "state").is_dir()
    run(served, "headrace fluxqueue run --store postgresql://me@db/jobs --store-password-file /secret/password")
    assert stores.pop() == Address("postgresql://me@db/jobs", "/secret/password")
    for options, why in {
        "--store postgresql://me:secret@db/jobs": "write it into a password file",
        "--store db/jobs": "must be sqlite:PATH or postgresql://USER@HOST/NAME",
        "--store-password-file /secret/password": "give that, too",
    }.items():
        assert headrace(["fluxqueue", "run", *options.split()]) == 1
        assert why in capsys.readouterr().err


def test_a_store_in_postgresql_needs_its_extra(
    served: list[Serving], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert headrace(["fluxqueue", "run", "--store", "postgresql://me@db/jobs"]) == 1
    assert "needs the extra fluxqueue" in capsys.readouterr().err


def test_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = Address(f"sqlite:{tmp_path}/store.sqlite")
    now = time.time()
    with opened(address) as database:
        for name, width, waited in (("a", 1, 10), ("b", 1, 30), ("c", 4, 200)):
            start = now - 7200
            write(database, life(name, start, now - 3600, width=width, namespace=name, queued_at=start - waited))

    def told(line: str) -> str:
        assert headrace(shlex.split(line)[1:]) == 0
        return capsys.readouterr().out

    rows = [row.split() for row in told(f"headrace fluxqueue history --statedir {tmp_path} --by width").splitlines()]
    assert rows[0] == ["WIDTH", "JOBS", "STARTED", "MEAN", "P50", "P95", "MAX", "POD-HOURS"]
    assert rows[1] == ["1", "2", "2", "20s", "10s", "30s", "30s", "4.00"]
    assert rows[2] == ["2-4", "1", "1", "3.333m", "3.333m", "3.333m", "3.333m", "2.00"]
    lines = told(f"headrace fluxqueue history --statedir {tmp_path} --since 30m").splitlines()
    assert lines[1].split() == ["all", "0", "0", "-", "-", "-", "-", "0.00"]
    line = f"headrace fluxqueue history --store {address.url} --since infinity --by namespace --json"
    found = json.loads(told(line))
    assert (found["since"], found["by"]) == (0, "namespace")
    assert [row["namespace"] for row in found["rows"]] == ["a", "b", "c"]
    assert found["rows"][0]["states"] == {"Finished": 1}
    for options, why in {"": "name it with --store", f"--statedir {tmp_path}/none": "is not there"}.items():
        assert headrace(["fluxqueue", "history", *options.split()]) == 1
        assert why in capsys.readouterr().err
    assert headrace(shlex.split("headrace fluxqueue history --store-password-file /secret/password")[1:]) == 1
    assert "give that, too" in capsys.readouterr().err
    assert headrace(["fluxqueue", "history", "--statedir", str(tmp_path), "--since", "soon"]) == 1
    assert "invalid duration 'soon'" in capsys.readouterr().err
