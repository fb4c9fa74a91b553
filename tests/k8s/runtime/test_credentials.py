"""Kubeconfig files, the service account of a pod, and tokens that change."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.k8s.runtime.credentials import CredentialsError, Identity, find, from_kubeconfig, pod_namespace


def config(folder: Path, user: dict[str, Any], name: str = "config", context: str = "here") -> Path:
    document = {
        "current-context": context,
        "clusters": [{"name": "c", "cluster": {"server": "http://192.0.2.1:8080/"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def token(identity: Identity, now: float = 0.0) -> str:
    return asyncio.run(identity.token(lambda: now))


def test_server_namespace_and_token_of_the_current_context(tmp_path: Path) -> None:
    cluster = find(str(config(tmp_path, {"token": "t"})), environ={})
    assert (cluster.server, cluster.namespace, cluster.tls) == ("http://192.0.2.1:8080", "team", None)
    assert token(cluster.identity) == "t"


def test_several_files_are_one(tmp_path: Path) -> None:
    one, other = config(tmp_path, {"token": "a"}), config(tmp_path, {"token": "b"}, "other", "there")
    cluster = find(context="there", environ={"KUBECONFIG": f"{one}:{other}:{tmp_path}/none"})
    assert token(cluster.identity) == "a", "the first of two users of a name counts"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = config(tmp_path, {})
    with pytest.raises(CredentialsError, match="no context 'x' \\(existing: here\\)"):
        from_kubeconfig([path], "x")
    with pytest.raises(CredentialsError, match=r"no kubeconfig: .*/\.kube/config does not exist"):
        find(environ={"HOME": str(tmp_path)})
    path.write_text("[")
    with pytest.raises(CredentialsError, match="kubeconfig"):
        find(str(path), environ={})


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    identity = find(str(config(tmp_path, {"tokenFile": "token"})), environ={}).identity
    assert token(identity) == "one"
    (tmp_path / "token").write_text("two")
    assert (token(identity, 59), token(identity, 61)) == ("one", "two")
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialsError, match="token file"):
        token(identity, 999)


def test_a_program_makes_tokens_that_expire(tmp_path: Path) -> None:
    status = {"token": "made", "expirationTimestamp": "1970-01-01T01:00:00Z"}
    script = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); print({json.dumps(json.dumps({'status': status}))})"
    program = {"command": sys.executable, "args": ["-c", script], "apiVersion": "client.authentication.k8s.io/v1"}
    identity = find(str(config(tmp_path, {"exec": program})), environ={}).identity
    assert [token(identity, now) for now in (0, 1000, 3539, 3541)] == ["made"] * 4
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ({"command": "/no/such"}, "credential program /no/such: No such file"),
        ({"command": "false"}, "ended with status 1"),
        ({"command": "echo", "args": ["{}"]}, "printed no ExecCredential"),
    ],
)
def test_a_program_that_fails_is_named(program: dict[str, Any], why: str) -> None:
    with pytest.raises(CredentialsError, match=why):
        token(Identity(program=program))


def test_the_namespace_of_a_pod_is_that_of_its_service_account(tmp_path: Path) -> None:
    assert pod_namespace(tmp_path) == ""
    (tmp_path / "namespace").write_text("team\n")
    assert pod_namespace(tmp_path) == "team"
