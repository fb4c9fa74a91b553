"""Finds the API server and credentials, in a kubeconfig file or a pod's service account.

A token is read before each request: the kubelet replaces the token file of a service account about once an hour, and
the tokens of a kubeconfig's `exec` program expire (client.authentication.k8s.io/v1).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds for which the content of a token file is reused.
_TOKEN_FILE_LIFE = 60.0
# Seconds by which a token of an `exec` program is replaced before it expires.
_EXPIRY_MARGIN = 60.0


class CredentialsError(Exception):
    """No API server or no credentials were found; the message names the places that were searched."""


class Identity:
    """A user's credentials. `token` returns a valid bearer token, "" if a client certificate is used."""

    def __init__(self, token: str = "", file: Path | None = None, program: dict[str, Any] | None = None) -> None:
        self._token = token
        self._file = file
        self._program = program
        self._until = 0.0 if file or program else float("inf")

    async def token(self, clock: Callable[[], float] = time.time) -> str:
        if clock() < self._until:
            return self._token
        if self._file:
            try:
                self._token = self._file.read_text().strip()
            except OSError as exc:
                raise CredentialsError(f"token file {self._file}: {exc.strerror}") from None
            self._until = clock() + _TOKEN_FILE_LIFE
        elif self._program:
            self._token, self._until = await _token_from_program(self._program)
        return self._token

    def forget(self) -> None:
        """Discard a token that the server has rejected; the next request obtains another one."""
        if self._file or self._program:
            self._until = 0.0


class Cluster(Struct, frozen=True):
    """One cluster. `server` is a URL, `tls` is None for plain HTTP.

    `namespace` is the default namespace. `is_of_pod` is True if this process runs in a pod of the cluster; `namespace`
    is then the pod's.
    """

    server: str
    identity: Identity
    tls: ssl.SSLContext | None = None
    namespace: str = "default"
    is_of_pod: bool = False


def find(kubeconfig: str = "", context: str = "", environ: dict[str, str] | None = None) -> Cluster:
    """The cluster of `kubeconfig`, KUBECONFIG, this process's pod, or ~/.kube/config, in this order.

    Raises CredentialsError.
    """
    environ = dict(os.environ) if environ is None else environ
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if not named and environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster(environ)
    home = environ.get("HOME", "")
    paths = [Path(one) for one in named.split(os.pathsep) if one] if named else [Path(home) / ".kube" / "config"]
    present = [one for one in paths if one.exists()]
    if not present:
        looked = ", ".join(str(one) for one in paths)
        raise CredentialsError(
            f"no kubeconfig: {looked} does not exist; use --kubeconfig or KUBECONFIG, or run in a pod with a "
            "service account"
        )
    return from_kubeconfig(present, context)


def in_cluster(environ: dict[str, str], folder: Path = SERVICE_ACCOUNT) -> Cluster:
    """The cluster of this process's pod, with the service account mounted there."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    return Cluster(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        identity=Identity(file=folder / "token"),
        tls=ssl.create_default_context(cafile=str(folder / "ca.crt")),
        namespace=pod_namespace(folder) or "default",
        is_of_pod=True,
    )


def pod_namespace(folder: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of this process's pod; "" outside of pods, and without a service account token."""
    try:
        return (folder / "namespace").read_text().strip()
    except OSError:
        return ""


def from_kubeconfig(paths: list[Path], context: str = "") -> Cluster:
    """The cluster and user of a context of kubeconfig files, which are merged as kubectl merges them.

    The context "" is the current one.
    """
    merged: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for path in paths:
        try:
            document = yaml.safe_load(path.read_text()) or {}
        except (OSError, yaml.YAMLError) as exc:
            raise CredentialsError(f"kubeconfig {path}: {exc}") from None
        if not isinstance(document, dict):
            raise CredentialsError(f"kubeconfig {path}: not a mapping")
        current = current or document.get("current-context") or ""
        for key, entries in merged.items():
            for entry in document.get(key) or []:
                entries.setdefault(entry["name"], (entry.get(key[:-1]) or {}, path))
    name = context or current
    where = ", ".join(str(path) for path in paths)
    if name not in merged["contexts"]:
        known = ", ".join(merged["contexts"]) or "none"
        raise CredentialsError(f"kubeconfig {where}: no context {name!r} (existing: {known})")
    chosen = merged["contexts"][name][0]
    cluster, cluster_path = merged["clusters"].get(chosen.get("cluster", ""), ({}, paths[0]))
    user, user_path = merged["users"].get(chosen.get("user", ""), ({}, paths[0]))
    if not cluster.get("server"):
        raise CredentialsError(f"kubeconfig {where}: context {name!r} has no cluster with a server")
    server = str(cluster["server"]).rstrip("/")
    return Cluster(
        server=server,
        identity=_identity(user, user_path),
        tls=_tls(cluster, cluster_path, user, user_path) if server.startswith("https:") else None,
        namespace=chosen.get("namespace") or "default",
    )


def _identity(user: dict[str, Any], path: Path) -> Identity:
    if user.get("token"):
        return Identity(token=str(user["token"]))
    if user.get("tokenFile"):
        return Identity(file=path.parent / user["tokenFile"])
    if user.get("exec"):
        return Identity(program=user["exec"])
    return Identity()


def _tls(cluster: dict[str, Any], cluster_path: Path, user: dict[str, Any], user_path: Path) -> ssl.SSLContext:
    authority = _data(cluster, "certificate-authority", cluster_path)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = _data(user, "client-certificate", user_path), _data(user, "client-key", user_path)
    if certificate and key:
        # The ssl module reads certificates only from files.
        with tempfile.NamedTemporaryFile(prefix="headrace-") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _data(entry: dict[str, Any], key: str, path: Path) -> bytes:
    if entry.get(f"{key}-data"):
        return base64.b64decode(str(entry[f"{key}-data"]))
    if not entry.get(key):
        return b""
    try:
        return (path.parent / str(entry[key])).read_bytes()
    except OSError as exc:
        raise CredentialsError(f"{key} {path.parent / entry[key]}: {exc.strerror}") from None


async def _token_from_program(program: dict[str, Any]) -> tuple[str, float]:
    """Run an `exec` program; returns its token, and when to replace it (seconds since the epoch)."""
    command = [str(program["command"]), *map(str, program.get("args") or [])]
    environ = {**os.environ, **{one["name"]: one["value"] for one in program.get("env") or []}}
    environ["KUBERNETES_EXEC_INFO"] = json.dumps(
        {"apiVersion": program.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    )
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environ)
        printed, _ = await process.communicate()
    except OSError as exc:
        raise CredentialsError(f"credential program {command[0]}: {exc.strerror}") from None
    if process.returncode:
        raise CredentialsError(f"credential program {' '.join(command)} ended with status {process.returncode}")
    try:
        status = json.loads(printed)["status"]
        token = str(status["token"])
    except (ValueError, KeyError, TypeError):
        raise CredentialsError(f"credential program {command[0]} printed no ExecCredential with a token") from None
    expires = status.get("expirationTimestamp")
    if not expires:
        return token, float("inf")
    return token, datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp() - _EXPIRY_MARGIN
