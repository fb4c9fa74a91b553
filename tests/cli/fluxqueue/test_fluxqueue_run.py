"""`headrace fluxqueue run`: what its options give the queue, and what it says without a cluster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from self_signed import self_signed

from headrace.cli.main import headrace
from headrace.cluster_queue.services.live_graph import Grpc
from headrace.cluster_queue.services.server import Tls
from headrace.cluster_queue.store.database import Address
from headrace.k8s.runtime.program import Serving
from headrace.programs.cluster_queue import serve as serving_module

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
    for option in ("metrics", "health", "webhook"):
        assert headrace(["fluxqueue", "run", f"--{option}-bind", ":99999"]) == 2
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
    (certificate, key), (client_ca, _) = self_signed(tmp_path, "own"), self_signed(tmp_path, "theirs")
    line = (
        "headrace fluxqueue run --grpc :1 --grpc-queue large --grpc-tls-cert own.crt --grpc-tls-key own.key "
        "--grpc-client-ca theirs.crt"
    )
    run(served, line)
    plain, full = Grpc(address=":4242"), Grpc(address=":1", queue="large", tls=Tls(certificate, key, client_ca))
    assert matching == [None, plain, full]
    assert headrace(["fluxqueue", "run", "--grpc", "127.0.0.1"]) == 2
    assert "argument --grpc: '127.0.0.1' is not HOST:PORT" in capsys.readouterr().err
    assert headrace(["fluxqueue", "run", "--grpc-queue", "zz"]) == 1
    assert "--grpc-queue needs --grpc" in capsys.readouterr().err
    tls = line.split()[-6:]
    assert headrace(["fluxqueue", "run", *tls]) == 1
    why = "--grpc-tls-cert and --grpc-tls-key and --grpc-client-ca: only with --grpc"
    assert why in capsys.readouterr().err
    assert headrace(["fluxqueue", "run", "--grpc", ":1", "--grpc-queue", "X Y"]) == 2
    assert "argument --grpc-queue: 'X Y' is not a valid name" in capsys.readouterr().err
    assert headrace(["fluxqueue", "run", "--grpc", ":1", "--grpc-tls-cert", "x"]) == 1
    assert "--grpc-tls-cert and --grpc-tls-key go together" in capsys.readouterr().err


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["fluxqueue", "run", "--kubeconfig", f"{tmp_path}/none"]) == 1
    assert f"no kubeconfig: {tmp_path}/none does not exist" in capsys.readouterr().err


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
        "--store-password-file /secret/password": "--store-password-file needs --store",
    }.items():
        assert headrace(["fluxqueue", "run", *options.split()]) == 1
        assert why in capsys.readouterr().err


def test_a_store_in_postgresql_needs_its_extra(
    served: list[Serving], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert headrace(["fluxqueue", "run", "--store", "postgresql://me@db/jobs"]) == 1
    assert "needs the extra fluxqueue" in capsys.readouterr().err
