"""Programs of this work tree that act in a cluster for developers, as processes: so a change needs no image.

They run in the cluster's namespaces and end with it. `kube restart NAME PROGRAM` takes changed code, `kube logs NAME
PROGRAM` is what it says.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from .box import wait_for
from .cluster import Cluster
from .errors import KubeError

ROOT = Path(__file__).resolve().parent.parent.parent.parent

# Runs a command again whenever it ends, as a Deployment would: a program ends when it loses its Lease, which it does
# on a busy machine. SIGTERM ends both.
_AGAIN = """
trap 'kill "$command"; wait "$command"; exit 0' TERM
while :; do
    "$@" &
    command=$!
    wait "$command"
    echo "the program has ended with $?, and is started again" >&2
    sleep 1 &
    command=$!
    wait "$command"
done
"""


def headrace() -> str:
    """The command of this work tree. Raises KubeError where none is installed."""
    beside = Path(sys.executable).parent / "headrace"
    for path in (str(beside), str(ROOT / ".venv/bin/headrace"), shutil.which("headrace")):
        if path and os.access(path, os.X_OK):
            return path
    raise KubeError("no headrace command: `make .venv/.installed` installs it")


def manifests(part: str) -> list[dict[str, Any]]:
    """The objects of an install, as `headrace PART manifests` prints them."""
    printed = subprocess.run([headrace(), part, "manifests"], check=True, capture_output=True).stdout
    return list(yaml.safe_load_all(printed))


def install(cluster: Cluster, objects: list[dict[str, Any]], port: int) -> list[str]:
    """Apply `objects`, whose webhooks are then asked for at `port` of the control plane's address; returns the options
    that have the program of these webhooks serve them there.
    """
    address = cluster.addresses.control_plane
    for one in objects:
        for hook in one.get("webhooks", ()):
            hook["clientConfig"] = {"url": f"https://{address}:{port}{hook['clientConfig']['service']['path']}"}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=listed)
    return [f"--webhook-bind={address}:{port}", f"--webhook-address={address}"]


def start(cluster: Cluster, name: str, words: list[str], port: int) -> None:
    """Start `headrace WORDS` as the component `name`, anew if it runs, with its pages at `port` and the next one.
    Returns when it works.
    """
    address = cluster.addresses.control_plane
    if name in cluster.box.processes()[0]:
        cluster.box.stop(name)
    command = [headrace(), *words, f"--kubeconfig={cluster.kubeconfig}", "--log-format=text"]
    command += [f"--metrics-bind={address}:{port}", f"--health-bind={address}:{port + 1}"]
    cluster.box.start(name, ["sh", "-c", _AGAIN, "sh", *command])
    wait_for(lambda: _ready(cluster, name, f"http://{address}:{port + 1}/readyz"), name, 60, 0.1)


def served(cluster: Cluster, path: str) -> bool:
    """Whether the API server knows a kind, by the path of its objects."""
    try:
        return bool(cluster.api.get(path))
    except (KubeError, OSError):
        return False


def _ready(cluster: Cluster, name: str, page: str) -> bool:
    _, ended = cluster.box.processes()
    if name in ended:
        raise KubeError(f"{name} ended with {ended[name]}:\n{cluster.box.log(name)}")
    with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=1):
        return True
    return False
