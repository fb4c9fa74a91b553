"""Fingerprints of specs and objects, from which the operator knows what has changed since an object was made. Pure.

Fingerprints of a spec are the same in all versions of the operator: fields at their defaults count as absent, so that a
field that a later version adds changes no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from headrace.formats.spec.hostlist import count_hosts

from ...api.declarations import Effect
from ...api.fields import MOST_PODS, MiniCluster
from ...api.pod_plan import PLAN_FILE, decode
from .changes import effect_of, leaves

Object = dict[str, Any]

# The keys under which a cached object has its fingerprint, and a ConfigMap the hosts of its plan, instead of its
# content.
TRIMMED, HOSTS = "headrace-content", "headrace-hosts"


def whole(cluster: MiniCluster) -> str:
    """The fingerprint of the whole spec."""
    return _hash(leaves(cluster))


def recreating(cluster: MiniCluster) -> str:
    """The fingerprint of the fields whose change needs another Job, as a Job's template is immutable."""
    found = leaves(cluster)
    return _hash({path: found[path] for path in found if effect_of(path) is Effect.RECREATES})


def configuration(cluster: MiniCluster) -> str:
    """The fingerprint of the brokers' configuration, which running brokers reload."""
    return _hash(cluster.flux.broker_config)


def content_of(body: Object) -> str:
    """The fingerprint of an object's content, as far as the API server stores it unchanged. A trimmed object carries
    its own (`operator`).
    """
    if TRIMMED in body:
        return str(body[TRIMMED])
    if body.get("kind") == "Service" or "clusterIP" in (body.get("spec") or {}):
        spec = body["spec"]
        ports = [(one.get("name"), one.get("port")) for one in spec.get("ports") or ()]
        return _hash({"selector": spec.get("selector"), "ports": ports})
    return _hash(body.get("data"))


def hosts_of(config_map: Object) -> str:
    """The hosts of the instance, by rank, as a hostlist, from a MiniCluster's ConfigMap; "" for that of an image's own
    Flux, which has no plan, and for one that was changed to nonsense.
    """
    if HOSTS in config_map:
        return str(config_map[HOSTS])
    try:
        hosts = decode((config_map.get("data") or {}).get(PLAN_FILE, "")).hosts
        # Whoever may change the ConfigMap may write any list there.
        count_hosts(hosts, 2 * MOST_PODS)
        return hosts
    except ValueError:
        return ""


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
