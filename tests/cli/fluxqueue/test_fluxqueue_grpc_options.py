"""Certificates of `headrace fluxqueue match` and `run --grpc`: files that cannot be used are refused by option and file
before anything listens.
"""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from self_signed import self_signed

from headrace.cli.main import headrace
from headrace.cluster_queue.services import match
from headrace.cluster_queue.services.given_graph import GivenGraph

PAIR = "--tls-cert server.crt --tls-key server.key"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("server", "client"):
        self_signed(tmp_path, name)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no certificate\n")
    (tmp_path / "cut").write_bytes((tmp_path / "server.crt").read_bytes()[:-60])
    key = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "locked.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return tmp_path


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *(
            (f"{PAIR} --client-ca {file}", f"client-ca {file}: no readable certificate (PEM)")
            for file in ("empty", "text", "cut", "client.key")
        ),
        *(
            (f"--tls-cert {file} --tls-key server.key", f"tls-cert {file}: no readable certificate (PEM)")
            for file in ("empty", "text", "cut", "server.key")
        ),
        *(
            (f"--tls-cert server.crt --tls-key {file}", f"tls-key {file}: must be the key of ")
            for file in ("empty", "text", "server.crt", "client.key", "locked.key")
        ),
        ("--tls-cert server.crt --tls-key client.key", "server.crt, but is the key of another certificate"),
        (f"{PAIR} --client-ca none", "none: No such file or directory"),
        (f"{PAIR} --client-ca ''", "client-ca: must be a file, not ''"),
        ("--tls-cert '' --tls-key ''", "tls-cert: must be a file, not ''"),
        ("--client-ca client.crt", "client-ca needs both"),
    ],
)
@pytest.mark.parametrize("command", ["match --port 0", "run --grpc 127.0.0.1:0"])
def test_what_is_no_certificate_or_not_its_key_is_refused(
    command: str, options: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options.replace("--", "--grpc-") if command.startswith("run") else options
    assert headrace(["fluxqueue", *command.split(), *shlex.split(given)]) == 1
    assert why in capsys.readouterr().err


def test_certificates_with_words_beside_them_are_taken(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[match.Matching] = []
    monkeypatch.setattr(match, "run", lambda matching, listens: chosen.append(matching))
    authorities = "Prüfstelle\n".encode() + (files / "client.crt").read_bytes() + (files / "server.crt").read_bytes()
    (files / "authorities").write_bytes(authorities)
    assert headrace(["fluxqueue", "match", *PAIR.split(), "--client-ca", "authorities"]) == 0
    (matching,) = chosen
    assert matching.tls is not None and matching.tls.client_ca == authorities


def test_an_interrupt_ends_the_reading_of_a_graph_at_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    went_on: list[bool] = []

    def load(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        went_on.append(True)

    monkeypatch.setattr(GivenGraph, "load", load)
    assert headrace(["fluxqueue", "match", "--port", "0", "--graph", "text"]) == 130
    assert not went_on
