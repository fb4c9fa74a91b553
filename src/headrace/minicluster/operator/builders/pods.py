"""Pods of a MiniCluster: the pod templates of its Job and of its groups, and the pod of its services."""

from __future__ import annotations

from typing import Any

from ...api.fields import Container, Group, MiniCluster, Pod, View
from .. import names
from ..objects import as_object, owned, without_unset
from .containers import runner, service, sidecars, view_copies
from .images import Images, has_own_flux
from .volumes import PodVolumes, base_volumes

_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"


def pod_template(cluster: MiniCluster, images: Images, group: Group | None = None) -> dict[str, Any]:
    """The template of the MiniCluster's own pods, or of a group's."""
    pod = (group.pod if group else None) or cluster.spec.pod or Pod()
    metadata = {
        "name": names.group_job(cluster, group) if group else names.job(cluster),
        "namespace": cluster.namespace,
        "labels": template_labels(cluster, pod, group),
        "annotations": pod.annotations,
    }
    volumes = PodVolumes(base_volumes(cluster, images))
    containers = [runner(cluster, images, volumes, group)]
    beside = [] if group else sidecars(cluster, images, volumes)
    used = [cluster.runner] if group else cluster.spec.containers
    fields = {
        **_pod_spec(pod, _pull_secrets(cluster, used)),
        "subdomain": names.service(cluster),
        "restartPolicy": pod.restart_policy or "Never",
        "schedulerName": pod.scheduler_name,
        "affinity": _affinity(cluster, pod),
        "resources": _pod_resources(pod),
        "hostIPC": pod.host_ipc or None,
        "hostPID": pod.host_pid or None,
        "shareProcessNamespace": cluster.spec.share_process_namespace,
        "initContainers": [*view_copies(cluster, images), *beside],
        "containers": containers,
        "volumes": volumes.specs,
    }
    return {"metadata": without_unset(metadata), "spec": without_unset(fields)}


def template_labels(cluster: MiniCluster, pod: Pod, group: Group | None = None) -> dict[str, str]:
    """The labels of pods with a broker.

    Autoscalers count the pods with `hpa-selector`, so a group's pods lack it.
    """
    fixed = {
        names.APP: names.APP_VALUE,
        names.APP_NAME: cluster.name,
        names.HPA_SELECTOR: "" if group else cluster.name,
        names.NAMESPACE: cluster.namespace,
        names.MANAGED_BY: names.MANAGER,
        names.CLUSTER: cluster.name,
    }
    return {**pod.labels, **{key: value for key, value in fixed.items() if value}}


def services_pod(cluster: MiniCluster, uid: str) -> dict[str, Any]:
    """The pod of `spec.services` (v1 Pod), reachable as `<name>-services` in the MiniCluster's Service."""
    pod = cluster.spec.pod or Pod()
    name = names.services_pod(cluster)
    labels = {
        **template_labels(cluster, pod),
        names.JOB_NAME: cluster.name,
        "job-index": "services",
    }
    # The scale subresource and the Service of a sidecar select only the Job's pods.
    del labels[names.HPA_SELECTOR]
    metadata = {**owned(cluster, name, uid, labels), "annotations": pod.annotations}
    volumes = PodVolumes([])
    fields = {
        **_pod_spec(pod, _pull_secrets(cluster, [*cluster.spec.containers, *cluster.spec.services], view=False)),
        "hostname": name,
        "subdomain": names.service(cluster),
        "restartPolicy": pod.restart_policy or "OnFailure",
        "containers": [service(one, volumes) for one in cluster.spec.services],
        "volumes": volumes.specs,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": without_unset(metadata), "spec": without_unset(fields)}


def _pod_spec(pod: Pod, pull_secrets: list[str]) -> dict[str, Any]:
    """The fields of `spec.pod` that apply to pods with a broker and to the services pod."""
    return {
        "automountServiceAccountToken": pod.automount_service_account_token,
        "dnsPolicy": pod.dns_policy,
        "imagePullSecrets": [{"name": name} for name in pull_secrets],
        "nodeSelector": pod.node_selector,
        "runtimeClassName": pod.runtime_class_name,
        "securityContext": as_object(pod.security_context),
        "serviceAccountName": pod.service_account_name,
        "setHostnameAsFQDN": False,
        "tolerations": [as_object(one) for one in pod.tolerations],
    }


def _pod_resources(pod: Pod) -> dict[str, Any]:
    """Resources of the whole pod, shared by its containers (pod-level resources, Kubernetes 1.34)."""
    return {"limits": pod.resources, "requests": pod.resources} if pod.resources else {}


def _pull_secrets(cluster: MiniCluster, containers: list[Container], view: bool = True) -> list[str]:
    found = [one.image_pull_secret for one in containers]
    if view and not has_own_flux(cluster):
        found.append((cluster.flux.container or View()).image_pull_secret)
    return [name for name in dict.fromkeys(found) if name]


def _affinity(cluster: MiniCluster, pod: Pod) -> dict[str, Any]:
    """Prefer one pod on each node, all in one zone; require nodes with the labels of `nodeAffinity`."""
    found: dict[str, Any] = {}
    wanted = [{"key": key, "operator": "In", "values": values} for key, values in pod.node_affinity.items() if values]
    if wanted:
        terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if not (cluster.spec.network and cluster.spec.network.disable_affinity):
        found["podAffinity"] = _preferred(cluster, _ZONE)
        found["podAntiAffinity"] = _preferred(cluster, _HOST)
    return found


def _preferred(cluster: MiniCluster, topology: str) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": names.APP_NAME, "operator": "In", "values": [cluster.name]}]}
    term = {"labelSelector": selector, "topologyKey": topology}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
