"""Updates of a Job that is a cluster: what admission wrote is put back, so that a file can be applied again. Pure.

The file is that of the Job before admission. Merged (`kubectl apply`), an update has what admission added, and the
file's values where admission wrote others; as a replacement (`kubectl replace`) it has the file's alone. What is put
back is taken from the Job, so that it does not depend on the operator's version, options or images. The rest is for
Kubernetes to decide. Source: ValidateJobUpdate of Kubernetes 1.34; KEP-2926 and KEP-5440 for suspended Jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..read.cluster import LABEL_KEY, LABEL_VALUE
from ..read.field import Field
from ..read.options import ANNOTATION, Exit, read_options
from . import names
from .policy import broker_of, default_policies, id_of, original_pod, view_resources

Object = dict[str, Any]

# What admission writes, as paths in CEL from a Job: an update that changes nothing of it need not be reviewed.
WRITTEN = (
    f"metadata.?labels[?'{LABEL_KEY}']",
    f"spec.template.?metadata.?labels[?'{names.ID_LABEL}']",
    *(f"spec.?{key}" for key in ("completionMode", "podFailurePolicy", "podReplacementPolicy", "successPolicy")),
    *(
        f"spec.template.spec.?{key}"
        for key in (
            "containers",
            "initContainers",
            "restartPolicy",
            "subdomain",
            "volumes",
            "affinity.?podAntiAffinity",
        )
    ),
)
# Labels of the pods that the API server sets when it makes a selector.
_GENERATED = tuple(
    f"{prefix}{key}" for prefix in ("", "batch.kubernetes.io/") for key in ("controller-uid", "job-name")
)
# What may change in the template of a suspended Job, besides nodeAffinity and the resources of containers.
_METADATA = ("annotations", "labels")
_POD = ("nodeSelector", "schedulingGates", "tolerations")
_CONTAINERS = ("containers", "initContainers")
_FIXED = "cannot be changed: delete the Job, and create it anew"


def updated(update: Object, job: Object) -> Object:
    """The update of a Job that is a cluster, with all that admission wrote as the Job has it.

    Raises InvalidForeign with the fields of its pods that differ from the Job's, and that Kubernetes never lets change.
    A file in which `args` come to a `command` that are the same words is taken for one that has not changed, since its
    merge is equal to that of the file before.
    """
    after, before = Field(update), Field(job)
    is_honest = read_options(before["metadata"]["annotations"][ANNOTATION]).exit is Exit.HONEST
    spec, pods = after["spec"], after["spec"]["template"]
    admitted = before["spec"]["template"]
    cluster_id = id_of(job)
    differing = _differences(
        _fixed(admitted, admitted, cluster_id, is_honest), _fixed(pods, admitted, cluster_id, is_honest), pods.path
    )
    for path in differing:
        Field(None, path, after.problems).refuse(_FIXED)
    template = {
        **admitted.mapping(),
        "metadata": _pods_metadata(pods["metadata"], admitted["metadata"], before["spec"], cluster_id),
        "spec": _pod(pods["spec"], admitted["spec"]),
    }
    labels = {**after["metadata"]["labels"].mapping(), LABEL_KEY: LABEL_VALUE, names.ID_LABEL: cluster_id}
    metadata = {**after["metadata"].mapping(), "labels": labels}
    found = {**spec.mapping(), **_put_back(spec, before["spec"], is_honest), "template": template}
    after.end()
    return {**update, "metadata": metadata, "spec": found}


def _put_back(spec: Field, before: Field, is_honest: bool) -> Object:
    """The fields beside the template that admission wrote, and the selector, which is the API server's."""
    keys = ["completionMode"]
    if not spec["selector"].given and not _has_own_selector(before):
        keys.append("selector")
    if is_honest:
        broker = broker_of(before["template"]["spec"])
        defaults = default_policies(broker["name"].text() if broker else "")
        # A policy of the user's that the update takes away is not a default, and Kubernetes refuses the change.
        keys += [key for key in defaults if not spec[key].given and before[key].value == defaults[key]]
        keys.append("podReplacementPolicy")
    return {key: before[key].value for key in keys if before[key].given}


def _has_own_selector(spec: Field) -> bool:
    return spec["manualSelector"].flag()


# --- what cannot change


def _fixed(template: Field, admitted: Field, cluster_id: str, is_honest: bool) -> Object:
    """The user's part of a template that Kubernetes never lets change, whether `template` has additions or not."""
    pod = original_pod(template["spec"], admitted["spec"], cluster_id)
    # Admission overwrites a restart policy by rule.
    found = _without(pod, *_POD, *(["restartPolicy"] if is_honest else []))
    affinity = _without(found.pop("affinity", {}), "nodeAffinity")
    containers = {
        kind: [_without(one, "resources") if isinstance(one, dict) else one for one in found[kind]]
        for kind in _CONTAINERS
        if kind in found
    }
    spec = {**found, **containers, **({"affinity": affinity} if affinity else {})}
    return {**template.mapping(), "metadata": _without(template["metadata"].mapping(), *_METADATA), "spec": spec}


def _without(mapping: Object, *left_out: str) -> Object:
    return {key: value for key, value in mapping.items() if key not in left_out}


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    """The paths of values that differ; one that is null is absent."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("name") != after.get("name"):
            # Another item of a list: its other fields are not the ones that changed.
            yield f"{path}.name"
            return
        for key in sorted({*before, *after}, key=str):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and _have_fields(before):
        for index, (one, other) in enumerate(zip(before, after)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif before != after:
        yield path


def _have_fields(listed: list[Any]) -> bool:
    return all(isinstance(one, dict) for one in listed)


# --- what can


def _carried(old: Field, new: Field, keys: tuple[str, ...]) -> Object:
    """What a mapping has, with the update's values of some keys."""
    given = {key: new[key].value for key in keys if new[key].given}
    return {**_without(old.mapping(), *keys), **given}


def _pods_metadata(new: Field, old: Field, spec: Field, cluster_id: str) -> Object:
    before = old["labels"].mapping()
    generated = {} if _has_own_selector(spec) else {key: before[key] for key in _GENERATED if key in before}
    labels = {**generated, **new["labels"].mapping(), names.ID_LABEL: cluster_id}
    return {**_carried(old, new, _METADATA), "labels": labels}


def _pod(new: Field, old: Field) -> Object:
    found = _carried(old, new, _POD)
    affinity = _carried(old["affinity"], new["affinity"], ("nodeAffinity",))
    if affinity or old["affinity"].given:
        found["affinity"] = affinity
    for kind in _CONTAINERS:
        if old[kind].given:
            found[kind] = [_container(one, new, old) for one in old[kind].items()]
    return found


def _container(container: Field, new: Field, old: Field) -> Any:
    """A container of the Job with the update's resources."""
    name = container["name"].value
    if name == names.VIEW_CONTAINER:
        before = broker_of(old)
        after = _find(new, before["name"].value) if before else None
        if before is None or after is None or view_resources(before) == view_resources(after):
            return container.value
        return {**container.mapping(), "resources": view_resources(after)}
    found = _find(new, name)
    return _carried(container, found, ("resources",)) if found else container.value


def _find(pod: Field, name: str) -> Field | None:
    every = (one for kind in _CONTAINERS for one in pod[kind].items())
    return next((one for one in every if one["name"].value == name), None)
