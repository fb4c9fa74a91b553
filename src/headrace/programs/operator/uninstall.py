"""`headrace operator uninstall`: removes the operator from a cluster.

It first deletes the webhooks, so that the API server no longer calls the operator, then stops the operator, and deletes
the rest of the install. MiniClusters belong to users: they stay, with their definition, unless they are to be deleted,
too. Without an operator no queue is saved, so the finalizer that waits for that is removed from MiniClusters that stay.
"""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import product
from typing import Any

from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL
from headrace.k8s.objects.conditions import job_end
from headrace.k8s.objects.kinds import APISERVICES, JOBS, LEASES, MINICLUSTERS, PODS, SECRETS, Kind, api_service_name
from headrace.k8s.packaging.removal import DEFINITION, NAMESPACE, Item, Removal
from headrace.k8s.runtime.lease import seconds_fresh
from headrace.minicluster.client.clusters import other_manager, release
from headrace.minicluster.operator import names
from headrace.minicluster.operator.names import DEFAULT_NAMESPACE, LEASE, OTHER_LEASE, WEBHOOK

from .install import AUTHORITY, Install, user_roles
from .package import PACKAGE

Object = dict[str, Any]

_ADMISSION = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService")
_PROGRAM = "Deployment"
# Seconds to wait while the operator saves the queues of deleted MiniClusters; it gives up after 60.
SAVING = 90.0


def declared() -> list[Object]:
    """All objects that an install of the operator has with any options, and those that it creates itself."""
    found = [
        one
        for watched, cert_manager in product(((), ("team",)), (True, False))
        for one in PACKAGE.objects(
            Install(
                watched=watched, cert_manager=cert_manager, network_policies=("team",), trainer=True, metrics_api=True,
                flux_operator_namespace="operator-system",
            )
        )
    ]  # fmt: skip
    own = [(SECRETS, WEBHOOK), (SECRETS, AUTHORITY), (LEASES, LEASE)]
    own += [(APISERVICES, api_service_name(one)) for one in (CUSTOM, EXTERNAL)]
    return [*found, *(_declared(kind, name) for kind, name in own)]


def _declared(kind: Kind, name: str) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}


async def uninstall(removal: Removal, delete_miniclusters: bool) -> None:
    """Remove the operator. With `delete_miniclusters`, all MiniClusters are deleted, too.

    Raises ApiError, Unreachable, TooLongError.
    """
    await removal.find_objects()
    clusters = await _clusters_of_ours(removal) if delete_miniclusters else []
    pods = await _pods(removal, clusters)
    await removal.delete(clusters, patience=SAVING if _acts(removal) else 0)
    await removal.delete(removal.of(*_ADMISSION))
    # The operator may act until its pods are gone.
    await removal.delete(removal.of(_PROGRAM), "Foreground")
    await _release(removal)
    await removal.until_gone([*clusters, *pods])
    rest = [one for one in removal.items if one.kind.kind not in (*_ADMISSION, _PROGRAM, DEFINITION, NAMESPACE)]
    for_users = {role["metadata"]["name"] for role in user_roles(Install())}
    of_definition = [*(one for one in rest if one.name in for_users), *removal.of(DEFINITION)]
    await removal.delete(one for one in rest if one not in of_definition)
    if not await _keeps_definition(removal):
        await removal.delete(of_definition)
    await _report_jobs(removal)
    await removal.delete_namespaces([DEFAULT_NAMESPACE])


async def _clusters_of_ours(removal: Removal) -> list[Item]:
    """The MiniClusters that no other operator manages."""
    return [one for one in await removal.listed(MINICLUSTERS) if not other_manager(one.body)]


async def _pods(removal: Removal, clusters: list[Item]) -> list[Item]:
    """The pods of `clusters`."""
    places = {(one.namespace, one.name) for one in clusters}
    found = await removal.listed(PODS, labels=names.CLUSTER) if places else []
    return [one for one in found if (one.namespace, one.body["metadata"]["labels"][names.CLUSTER]) in places]


def _acts(removal: Removal) -> bool:
    """True if an operator is running, which saves the queues of MiniClusters that are deleted."""
    now = datetime.now(timezone.utc)
    return any(seconds_fresh(one.body, now) > 0 for one in removal.of(LEASES.kind))


async def _release(removal: Removal) -> None:
    """Remove the operator's finalizer from MiniClusters, since no operator is left to do so."""
    for one in await _clusters_of_ours(removal):
        meta = one.body["metadata"]
        if names.FINALIZER not in (meta.get("finalizers") or ()):
            continue
        if not removal.dry_run:
            await release(removal.api, one.namespace, one.name, meta["uid"])
        if meta.get("deletionTimestamp"):
            removal.notify(f"{one}: its queue is not saved, because no operator runs")


async def _keeps_definition(removal: Removal) -> bool:
    """True if the definition of MiniClusters must stay; the objects that need it are reported."""
    deleted = {one.body["metadata"]["uid"] for one in removal.deleted}
    stay = [one for one in await removal.listed(MINICLUSTERS) if one.body["metadata"]["uid"] not in deleted]
    if stay:
        why = "kept with its definition, and its pods keep running" if len(stay) == 1 else (
            "kept with their definition, and their pods keep running"
        )  # fmt: skip
        how = "headrace operator uninstall --delete-miniclusters deletes those that no other operator manages"
        removal.keep(stay, f"{why}; {how}")
        return True
    now = datetime.now(timezone.utc)
    for lease in await removal.listed(LEASES, fields=f"metadata.name={OTHER_LEASE}"):
        if seconds_fresh(lease.body, now) > 0 and removal.of(DEFINITION):
            why = f"the Flux Operator in namespace {lease.namespace} uses it"
            removal.keep(removal.of(DEFINITION), why)
            return True
    return False


async def _report_jobs(removal: Removal) -> None:
    """Report labelled Jobs that have not ended: they belong to users, so nothing of them is deleted."""
    jobs = [one for one in await removal.listed(JOBS, labels=f"{LABEL_KEY}={LABEL_VALUE}") if not job_end(one.body)]
    if jobs:
        why = "running pods continue, pods that have not started wait for an operator"
        removal.keep(jobs, why)
