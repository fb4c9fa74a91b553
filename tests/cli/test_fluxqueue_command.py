"""`headrace fluxqueue run|manifests|history`: what its options give the queue, and what it says without a cluster."""

from __future__ import annotations

import json
import shlex
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
from headrace.fluxqueue.store.database import Address
from headrace.fluxqueue.store.writing import write
from headrace.kube.runtime.program import Serving

# What the program was told of its store, at each start.
stores: list[Address | None] = []


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Serving]:
    found: list[Serving] = []

    async def record(serving: Serving, store: Address | None) -> int:
        found.append(serving)
        stores.append(store)
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


def printed(capsys: pytest.CaptureFixture[str], line: str) -> list[Any]:
    assert headrace(shlex.split(line)[1:]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_what_installs_the_queue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "headrace fluxqueue manifests") == objects(Install())
    line = "headrace fluxqueue manifests --namespace ops --image a:1 --replicas 2 --failure-policy Ignore"
    chosen = Install(namespace="ops", image="a:1", replicas=2, failure_policy="Ignore")
    assert printed(capsys, line) == objects(chosen)


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
    line = ["fluxqueue", "history", "--statedir", str(tmp_path)]
    assert headrace([*line, "--by", "width"]) == 0
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["WIDTH", "JOBS", "STARTED", "MEAN", "P50", "P95", "MAX", "POD-HOURS"]
    assert rows[1] == ["1", "2", "2", "20s", "10s", "30s", "30s", "4.00"]
    assert rows[2] == ["2-4", "1", "1", "3.333m", "3.333m", "3.333m", "3.333m", "2.00"]
    assert headrace([*line, "--since", "30m"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["all", "0", "0", "-", "-", "-", "-", "0.00"]
    assert headrace([*line, "--store", address.url, "--since", "infinity", "--by", "namespace", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["since"], found["by"]) == (0, "namespace")
    assert [row["namespace"] for row in found["rows"]] == ["a", "b", "c"]
    assert found["rows"][0]["states"] == {"Finished": 1}
    for options, why in {"": "name it with --store", f"--statedir {tmp_path}/none": "is not there"}.items():
        assert headrace(["fluxqueue", "history", *options.split()]) == 1
        assert why in capsys.readouterr().err
    assert headrace([*line, "--since", "soon"]) == 1
    assert "invalid duration 'soon'" in capsys.readouterr().err
