"""etcd, API server, controller manager and scheduler of a cluster, and a little client to see them get ready.

The API server listens on the control plane's address, which the machine, nodes and pods reach alike.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import build
from .box import Box, wait_for
from .errors import KubeError
from .places import Addresses

START_PATIENCE = 120.0
# The users that the programs are, with their groups: the administrator, and those that kubeadm gives to the controller
# manager and the scheduler. What these two may do follows from the roles that Kubernetes itself makes for them.
_CONTROLLER_MANAGER = "system:kube-controller-manager"
_SCHEDULER = "system:kube-scheduler"
_USERS = {"admin": ["system:masters"], _CONTROLLER_MANAGER: [], _SCHEDULER: []}


class Api:
    """The API server, spoken to with the administrator's token. Answers are decoded JSON objects."""

    def __init__(self, server: str, token: str) -> None:
        self._server, self._token = server, token
        context = ssl.create_default_context()
        # Its certificate is made at its start, by itself; who answers at this address on this machine is root anyhow.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        # An opener that looks for proxies in the environment at each request fails where another thread changes it.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One request. Raises KubeError with the server's words, and OSError where it cannot be reached."""
        text = self._answer(method, path, body, kind)
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    def _answer(self, method: str, path: str, body: Any, kind: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._server + path,
            data,
            {"Authorization": f"Bearer {self._token}", "Content-Type": kind},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=120) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as exc:
            raise KubeError(f"{method} {path}: {exc.code}: {exc.read().decode(errors='replace')[:1000]}") from exc

    def text(self, path: str) -> str:
        """What a path gives, as it is: the log of a pod."""
        return self._answer("GET", path, None, "application/json").decode(errors="replace")

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def ready(self) -> bool:
        with contextlib.suppress(KubeError, OSError):
            return bool(self.get("/readyz") == "ok")
        return False


def prepare(state: Path) -> None:
    """Make the tokens of all users."""
    tokens = {user: secrets.token_urlsafe(24) for user in _USERS}
    for user, token in tokens.items():
        _write(_token_file(state, user), token)
    lines = (",".join([token, user, user, *_USERS[user]]) for user, token in tokens.items())
    _write(state / "tokens.csv", "\n".join(lines) + "\n")


def _write(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)


def _token_file(state: Path, user: str) -> Path:
    return state / ("token" if user == "admin" else f"token-{user}")


def _kubeconfig_file(state: Path, user: str) -> Path:
    return state / ("kubeconfig" if user == "admin" else f"kubeconfig-{user}")


def kubeconfig(server: str, token: str, authority: bytes) -> str:
    """A kubeconfig that trusts the certificates `authority`; JSON, which is YAML."""
    trust = {"certificate-authority-data": base64.b64encode(authority).decode()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "headrace", "cluster": {"server": server, **trust}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "headrace", "context": {"cluster": "headrace", "user": "admin"}}],
            "current-context": "headrace",
        },
        indent=1,
    )


def _flags(**values: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _etcd(state: Path) -> list[str]:
    return [
        build.program("kubernetes", "etcd"),
        *_flags(
            data_dir=state / "fast/etcd",
            listen_client_urls="http://127.0.0.1:2379",
            advertise_client_urls="http://127.0.0.1:2379",
            listen_peer_urls="http://127.0.0.1:2380",
            log_level="warn",
        ),
        "--unsafe-no-fsync",
    ]


def _apiserver(state: Path, addresses: Addresses) -> list[str]:
    key = state / "service-accounts.key"
    return [
        build.program("kubernetes", "kube-apiserver"),
        *_flags(
            advertise_address=addresses.control_plane,
            bind_address=addresses.control_plane,
            secure_port=6443,
            etcd_servers="http://127.0.0.1:2379",
            cert_dir=state / "certificates",
            token_auth_file=state / "tokens.csv",
            authorization_mode="RBAC",
            service_account_key_file=key,
            service_account_signing_key_file=key,
            service_account_issuer="https://kubernetes.default.svc.cluster.local",
            service_cluster_ip_range=addresses.services,
            kubelet_preferred_address_types="InternalIP",
            allow_privileged="true",
            endpoint_reconciler_type="master-count",
            enable_aggregator_routing="true",
            # Pods with image volumes are kept as they are; the containerd of the nodes is too old to run them.
            feature_gates="ImageVolume=true",
        ),
    ]


def _controller_manager(state: Path, addresses: Addresses) -> list[str]:
    return [
        build.program("kubernetes", "kube-controller-manager"),
        *_flags(
            kubeconfig=_kubeconfig_file(state, _CONTROLLER_MANAGER),
            use_service_account_credentials="true",
            service_account_private_key_file=state / "service-accounts.key",
            root_ca_file=state / "certificates/apiserver.crt",
            leader_elect="false",
            cluster_cidr=addresses.pods,
            kube_api_qps=200,
            kube_api_burst=400,
            # An autoscaler decides every 15 s and shrinks after 5 minutes by default; tests wait for it.
            horizontal_pod_autoscaler_sync_period="1s",
            horizontal_pod_autoscaler_downscale_stabilization="2s",
            # That a node is silent is told after 50 s by default. Its lease (kubelet) is renewed each 4 s.
            node_monitor_grace_period="20s",
            node_monitor_period="2s",
            bind_address="127.0.0.1",
        ),
    ]


def _scheduler(state: Path) -> list[str]:
    return [
        build.program("kubernetes", "kube-scheduler"),
        *_flags(
            kubeconfig=_kubeconfig_file(state, _SCHEDULER),
            leader_elect="false",
            kube_api_qps=200,
            kube_api_burst=400,
            bind_address="127.0.0.1",
        ),
    ]


def start(box: Box, addresses: Addresses, options: Mapping[str, Sequence[str]]) -> Api:
    """Start the control plane, with these further options by program; a client of it, once its API is ready."""
    state = box.state
    box.run([build.program("kubernetes", "kubernetes"), "service-account-key", str(state / "service-accounts.key")])
    box.start("etcd", _etcd(state))
    box.start("kube-apiserver", [*_apiserver(state, addresses), *options.get("kube-apiserver", ())])
    api = Api(addresses.server, (state / "token").read_text())

    def ready() -> bool:
        _, ended = box.processes()
        for name in ("etcd", "kube-apiserver"):
            if name in ended:
                raise KubeError(f"{name} ended with {ended[name]}:\n{box.log(name)}")
        return api.ready()

    wait_for(ready, "the API server", START_PATIENCE, 0.05)
    authority = (state / "certificates/apiserver.crt").read_bytes()
    for user in _USERS:
        text = kubeconfig(addresses.server, _token_file(state, user).read_text(), authority)
        _write(_kubeconfig_file(state, user), text)
    further = options.get("kube-controller-manager", ())
    box.start("kube-controller-manager", [*_controller_manager(state, addresses), *further])
    box.start("kube-scheduler", _scheduler(state))
    return api
