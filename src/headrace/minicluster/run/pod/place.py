"""The place of this pod in the MiniCluster: host, rank, namespace, and the folder of its files."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from headrace.formats.spec.hostlist import Hostlist

from ...api import pod_plan
from ...api.pod_plan import PodPlan

# Kubernetes writes the namespace here for a pod with a service account's token.
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class PlaceError(Exception):
    """This pod is not in its plan, or it cannot run as planned; the message is for users."""


class Place(NamedTuple):
    """A pod: its host name in the plan, rank, the folder its containers share, and that of its keys."""

    host: str
    rank: int
    size: int
    namespace: str
    mount: str
    keys: str = pod_plan.KEYS_FOLDER

    @property
    def config(self) -> str:
        """The folder of the broker's files, which the pod's other containers use, too."""
        return f"{self.mount}/config"

    @property
    def socket(self) -> str:
        return f"{self.config}/run/flux/local"


def read_plan(folder: str = pod_plan.PLAN_FOLDER) -> PodPlan:
    """Read the plan in a folder. Raises PlaceError."""
    path = os.path.join(folder, pod_plan.PLAN_FILE)
    try:
        with open(path, "rb") as file:
            return pod_plan.decode(file.read())
    except (OSError, ValueError) as exc:
        raise PlaceError(f"{path}: {exc}") from None


def find_place(plan: PodPlan, env: Mapping[str, str], hostname: str = "", keys: str = pod_plan.KEYS_FOLDER) -> Place:
    """Find the pod of this process in the plan, by its host name or by its index in its Job.

    Raises PlaceError.
    """
    name = (hostname or socket.gethostname()).split(".")[0]
    hosts = list(Hostlist.parse(plan.hosts))
    index = env.get(pod_plan.INDEX_VARIABLE, "")
    # A pod that uses the node's network has the node's host name, so it is found by its index.
    host = next((one for one in (name, f"{plan.name}-{index}") if one in hosts), "")
    if not host:
        raise PlaceError(f"this pod's host name, {name}, is not among the hosts {plan.hosts}")
    return Place(host, hosts.index(host), len(hosts), _namespace(env), plan.mount_path, keys)


def _namespace(env: Mapping[str, str]) -> str:
    given = env.get(pod_plan.NAMESPACE_VARIABLE, "")
    if given:
        return given
    try:
        with open(_NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "default"
