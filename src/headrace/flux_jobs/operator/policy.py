"""Changes a labelled Job so that its pods are a cluster, and restores the original. Pure.

`flux_job` changes only what the cluster needs: other containers, and all fields that it does not name, stay as they
are. The user's command stays in the container's `args`, after the runner, so that the kubelet expands `$(VAR)` in it as
before. Names are derived from the cluster's ID alone; keys and plan are in a Secret that is created later.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from headrace.k8s.objects.problems import Problem
from headrace.k8s.objects.quantities import quantity
from headrace.k8s.packaging.images import UNPRIVILEGED
from headrace.minicluster.api.fields import QUANTITY
from headrace.minicluster.api.pod_plan import NAMESPACE_VARIABLE
from headrace.minicluster.operator.builders.containers import NAMESPACE
from headrace.minicluster.operator.builders.images import Images, image_mount, image_volume, least_privileged, view_copy
from headrace.minicluster.operator.builders.jobs import REPLACEMENT_POLICY, SUCCESS_POLICY, default_failure_policy
from headrace.minicluster.operator.builders.volumes import secret_volume
from headrace.minicluster.operator.names import RUNNER
from headrace.minicluster.operator.objects import without_unset

from ..read.cluster import ForeignCluster
from ..read.field import Field, InvalidForeign, kind_of, written
from ..read.job import read
from ..read.options import Exit, Spread
from . import names

Object = dict[str, Any]

# The names of Secret and Service contain the ID.
_ID = re.compile(rf"[0-9a-f]{{{names.ID_LENGTH}}}\Z")
_COMMAND = [RUNNER, names.MODE]
_SHARED_MEMORY = "/dev/shm"
_NODE = "kubernetes.io/hostname"
_TERMS = {
    Spread.PREFERRED: "preferredDuringSchedulingIgnoredDuringExecution",
    Spread.REQUIRED: "requiredDuringSchedulingIgnoredDuringExecution",
}
_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DEFAULT_PROFILE = {"type": "RuntimeDefault"}
_OUR_VOLUMES = (names.VIEW_VOLUME, names.CLUSTER_VOLUME, names.SHARED_MEMORY_VOLUME, names.IMAGE_VOLUME)


def flux_job(job: Object, images: Images, cluster_id: str) -> Object:
    """The Job whose pods are the cluster `cluster_id` (ten hexadecimal digits).

    A Job that has an ID is returned unchanged. Raises InvalidForeign with all problems.
    """
    if id_of(job):
        return job
    at = Field(job)
    cluster = read(job, at=at)
    spec, template = at["spec"], at["spec"]["template"]
    found = {
        **spec.mapping(),
        **_policies(spec, cluster),
        "completionMode": "Indexed",
        "completions": cluster.size,
        "parallelism": cluster.size,
        "template": {
            **template.mapping(),
            "metadata": _labelled(template["metadata"], cluster_id),
            "spec": _pod(template["spec"], cluster, images, cluster_id),
        },
    }
    metadata = _labelled(at["metadata"], cluster_id)
    # Fields that only this module reads are checked when they are used, so `read` has not reported their problems.
    at.end()
    return {**job, "metadata": metadata, "spec": found}


def refusals(job: Object) -> list[Problem]:
    """The reasons why a Job cannot become a cluster, each with its field; none if the Job has an ID."""
    try:
        flux_job(job, Images(), "0" * names.ID_LENGTH)
    except InvalidForeign as exc:
        return exc.problems
    return []


def id_of(job: Object) -> str:
    """The ID of the cluster that a Job is; "" for other Jobs, and for a label that is not a valid ID."""
    label = Field(job)["spec"]["template"]["metadata"]["labels"][names.ID_LABEL].text()
    return label if _ID.match(label) else ""


def original(job: Object) -> Object:
    """The Job that `flux_job` received, except for the fields that admission always overwrites.

    `read` returns the same cluster for it. `job` may have the API server's defaults and the changes of controllers. A
    Job without an ID is returned unchanged.
    """
    cluster_id = id_of(job)
    if not cluster_id:
        return job
    at = Field(job)
    spec, template = at["spec"], at["spec"]["template"]
    pod, broker = original_pod(template["spec"], template["spec"], cluster_id), broker_of(template["spec"])
    before = {**template.mapping(), "metadata": _unlabelled(template["metadata"]), "spec": pod}
    # Policies that admission added are removed: whether a policy is the user's decides how pods end.
    added = default_policies(broker["name"].text()) if broker else {}
    found = {key: value for key, value in spec.mapping().items() if key not in added or value != added[key]}
    return {**job, "metadata": _unlabelled(at["metadata"]), "spec": {**found, "template": before}}


# --- the Job


def default_policies(container: str) -> Object:
    """The policies that a Job gets unless it has its own; `container` is the broker's container."""
    return {"podFailurePolicy": default_failure_policy(container), "successPolicy": SUCCESS_POLICY}


def _policies(spec: Field, cluster: ForeignCluster) -> Object:
    """The policies by which the Job ends like the lead's command. The Job's own policies are kept."""
    if cluster.options.exit is Exit.KEEP:
        return {}
    return {
        **{key: spec[key].mapping() or policy for key, policy in default_policies(cluster.container).items()},
        # Always overwritten: the API server has set a default, so the user's value cannot be recognized.
        "podReplacementPolicy": REPLACEMENT_POLICY,
    }


def _labelled(metadata: Field, cluster_id: str) -> Object:
    return {**metadata.mapping(), "labels": {**metadata["labels"].mapping(), names.ID_LABEL: cluster_id}}


def _unlabelled(metadata: Field) -> Object:
    labels = {key: value for key, value in metadata["labels"].mapping().items() if key != names.ID_LABEL}
    return _with(metadata, labels=labels)


def _with(field: Field, **changed: Any) -> Object:
    """A mapping with changed members; changed members that are empty are omitted."""
    found = {**field.mapping(), **changed}
    return {key: value for key, value in found.items() if key not in changed or value not in ("", [], {})}


# --- its pods


def _pod(pod: Field, cluster: ForeignCluster, images: Images, cluster_id: str) -> Object:
    containers = pod["containers"].items()
    broker = next(one for one in containers if one["name"].value == cluster.container)
    pairs = _volumes(pod, broker, cluster, images, cluster_id)
    mounts = [mount for _, mount in pairs]
    copies = [] if images.as_volume else [_view_copy(pod, broker, images.view)]
    changed: Object = {
        "subdomain": pod["subdomain"].text() or names.service(cluster_id),
        "initContainers": [*copies, *_values(pod["initContainers"])],
        "containers": [_broker(one, mounts) if one is broker else one.value for one in containers],
        "volumes": [*_values(pod["volumes"]), *(volume for volume, _ in pairs)],
    }
    if cluster.options.exit is Exit.HONEST:
        # A pod failure policy requires it.
        changed["restartPolicy"] = "Never"
    if cluster.options.spread is not Spread.NONE:
        changed["affinity"] = _apart(pod["affinity"], cluster.options.spread, cluster_id)
    return _with(pod, **changed)


def _values(listed: Field) -> list[Any]:
    return [item.value for item in listed.items()]


def _broker(container: Field, mounts: list[Object]) -> Object:
    """The broker's container, with the runner before the user's command, which no shell interprets."""
    return _with(
        container,
        command=list(_COMMAND),
        args=[*_values(container["command"]), *_values(container["args"])],
        env=[*_values(container["env"]), NAMESPACE],
        volumeMounts=[*_values(container["volumeMounts"]), *mounts],
    )


def _volumes(
    pod: Field, broker: Field, cluster: ForeignCluster, images: Images, cluster_id: str
) -> list[tuple[Object, Object]]:
    """The cluster's volumes, each with its mount in the broker's container."""
    secret = secret_volume(names.CLUSTER_VOLUME, names.secret(cluster_id), names.CLUSTER_FILES)
    found: list[tuple[Object, Object]] = [
        ({"name": names.VIEW_VOLUME, "emptyDir": {}}, _view_mount()),
        (secret, {"name": names.CLUSTER_VOLUME, "mountPath": names.CLUSTER_FOLDER, "readOnly": True}),
    ]
    if images.as_volume:
        found.append((image_volume(names.IMAGE_VOLUME, images.view), image_mount(names.IMAGE_VOLUME)))
    if _wants_shared_memory(broker, cluster):
        limit = cluster.options.shared_memory or _half(_memory_limit(pod, broker))
        volume = {
            "name": names.SHARED_MEMORY_VOLUME,
            "emptyDir": without_unset({"medium": "Memory", "sizeLimit": limit}),
        }
        found.append((volume, {"name": names.SHARED_MEMORY_VOLUME, "mountPath": _SHARED_MEMORY}))
    return found


def _view_mount() -> Object:
    return {"name": names.VIEW_VOLUME, "mountPath": names.VIEW_ROOT}


def _wants_shared_memory(broker: Field, cluster: ForeignCluster) -> bool:
    paths = [one["mountPath"].text() for one in broker["volumeMounts"].items()]
    is_mounted = any(posixpath.normpath(f"/{path.lstrip('/')}") == _SHARED_MEMORY for path in paths)
    return cluster.options.shared_memory != "none" and not is_mounted


def _memory_limit(pod: Field, broker: Field) -> Field:
    """The container's memory limit, or else the pod's."""
    own = broker["resources"]["limits"]["memory"]
    return own if own.given else pod["resources"]["limits"]["memory"]


def _half(limit: Field) -> str:
    """Half of a quantity of bytes, with the largest binary suffix that divides it; "" without a limit."""
    value = limit.value
    if value is None:
        return ""
    text = written(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not QUANTITY.match(text) or text.startswith("-"):
        limit.refuse(f"must be a quantity such as 1Gi, not {kind_of(value)}")
        return ""
    half, suffix = int(quantity(text) / 2), ""
    for larger in _SUFFIXES:
        if not half or half % 1024:
            break
        half, suffix = half // 1024, larger
    return f"{half}{suffix}"


def view_resources(broker: Field) -> Object:
    """The resources of the init container that copies the view: the broker's cpu and memory.

    With less, a Guaranteed pod would become a Burstable one; with more, the pod would need more.
    """
    given = broker["resources"]
    resources = {
        kind: without_unset({key: given[kind][key].value for key in ("cpu", "memory")})
        for kind in ("limits", "requests")
    }
    return without_unset(resources)


def _view_copy(pod: Field, broker: Field, image: str) -> Object:
    """The init container that copies the view."""
    context = _restricted(pod["securityContext"], broker["securityContext"])
    resources = view_resources(broker)
    return view_copy(names.VIEW_CONTAINER, image, [_view_mount()], security_context=context, resources=resources)


def _restricted(pod: Field, container: Field) -> Object:
    """A security context that the Pod Security Standard `restricted` admits.

    It has the user of the container unless that is root. If the Job names no user, the image's user applies, which is
    unprivileged.
    """
    user = container["runAsUser"] if container["runAsUser"].given else pod["runAsUser"]
    profile = container["seccompProfile"].mapping() or pod["seccompProfile"].mapping()
    identity = {
        "runAsGroup": container["runAsGroup"].value,
        "runAsNonRoot": True,
        "runAsUser": user.number(UNPRIVILEGED, 0) or UNPRIVILEGED if user.given else None,
        "seLinuxOptions": container["seLinuxOptions"].value,
        "seccompProfile": profile if profile.get("type") in ("RuntimeDefault", "Localhost") else _DEFAULT_PROFILE,
    }
    return {**least_privileged(without_unset(identity)), "readOnlyRootFilesystem": True}


def _apart(affinity: Field, spread: Spread, cluster_id: str) -> Object:
    """The affinity with an added term: pods of the cluster run on different nodes."""
    term: Object = {"labelSelector": {"matchLabels": {names.ID_LABEL: cluster_id}}, "topologyKey": _NODE}
    anti, kind = affinity["podAntiAffinity"], _TERMS[spread]
    one = {"weight": 100, "podAffinityTerm": term} if spread is Spread.PREFERRED else term
    return _with(affinity, podAntiAffinity=_with(anti, **{kind: [*_values(anti[kind]), one]}))


# --- the original


def original_pod(pod: Field, admitted: Field, cluster_id: str) -> Object:
    """The spec of a pod without the additions of admission.

    `admitted` is the pod as admission wrote it: either `pod` itself, or the pod that an update changes to `pod`. In an
    update, only a part that equals an addition is removed.
    """
    subdomain = pod["subdomain"].text()
    anti, others = pod["affinity"]["podAntiAffinity"], admitted["affinity"]["podAntiAffinity"]
    terms = {
        kind: _except(anti[kind], [one.value for one in others[kind].items() if _is_ours(one)])
        for kind in _TERMS.values()
    }
    broker = broker_of(admitted)
    return _with(
        pod,
        subdomain="" if subdomain == names.service(cluster_id) else subdomain,
        affinity=_with(pod["affinity"], podAntiAffinity=_with(anti, **terms)),
        initContainers=_except(pod["initContainers"], _named(admitted["initContainers"], (names.VIEW_CONTAINER,))),
        containers=[
            _original_broker(one, broker) if broker and one["name"].value == broker["name"].value else one.value
            for one in pod["containers"].items()
        ],
        volumes=_except(pod["volumes"], _named(admitted["volumes"], _OUR_VOLUMES)),
    )


def broker_of(admitted: Field) -> Field | None:
    """The broker's container of a cluster's pod."""
    return next((one for one in admitted["containers"].items() if one["command"].value == _COMMAND), None)


def _is_ours(term: Field) -> bool:
    inner = term["podAffinityTerm"] if term["podAffinityTerm"].given else term
    return names.ID_LABEL in inner["labelSelector"]["matchLabels"].mapping()


def _original_broker(container: Field, admitted: Field) -> Object:
    variable = _named(admitted["env"], (NAMESPACE_VARIABLE,))
    command = [] if container["command"].value == _COMMAND else _values(container["command"])
    args = _values(container["args"])
    # `kubectl apply` of a file with a command but no arguments merges this command into the admitted container, which
    # keeps admission's arguments and variable. These arguments are not the user's.
    is_merged = bool(_named(container["env"], (NAMESPACE_VARIABLE,)))
    if command and is_merged and args == _values(admitted["args"]):
        args = []
    return _with(
        container,
        command=[*command, *args],
        args=[],
        env=_except(container["env"], variable),
        volumeMounts=_except(container["volumeMounts"], _named(admitted["volumeMounts"], _OUR_VOLUMES)),
    )


def _named(listed: Field, wanted: tuple[str, ...]) -> list[Any]:
    return [item.value for item in listed.items() if item["name"].value in wanted]


def _except(listed: Field, left_out: list[Any]) -> list[Any]:
    return [item.value for item in listed.items() if item.value not in left_out]
