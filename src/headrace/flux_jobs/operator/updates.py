"""Restores what admission wrote when a Job that is a cluster is updated. Pure.

So the Job's file can be applied again. The file is that of the Job before admission. An update that is merged (`kubectl
apply`) has admission's additions, and the file's values for the fields that admission overwrote. An update that
replaces the Job (`kubectl replace`) has only the file's fields. What admission wrote is copied from the existing Job,
so that it does not depend on the operator's version, options or images. All other changes are left to Kubernetes to
accept or reject. Source: ValidateJobUpdate of Kubernetes 1.34; KEP-2926 and KEP-5440 for suspended Jobs.
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

# The fields that admission writes, as CEL paths from a Job. An update that changes none of them is not reviewed.
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
# Labels of pods that the API server sets when it generates a selector.
_GENERATED = tuple(
    f"{prefix}{key}" for prefix in ("", "batch.kubernetes.io/") for key in ("controller-uid", "job-name")
)
# The parts of a suspended Job's template that may change, besides nodeAffinity and the resources of containers.
_METADATA = ("annotations", "labels")
_POD = ("nodeSelector", "schedulingGates", "tolerations")
_CONTAINERS = ("containers", "initContainers")
_FIXED = "cannot be changed: delete the Job, and create it again"


def updated(update: Object, job: Object) -> Object:
    """The update of a Job that is a cluster, with everything that admission wrote copied from the Job.

    Raises InvalidForeign with the fields of its pods that differ from the Job's and that Kubernetes never allows to
    change. A file that adds `args` with the same words as its `command` counts as unchanged, because the merge of both
    files is the same.
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
    """The fields outside of the template that admission wrote, and the API server's selector."""
    keys = ["completionMode"]
    if not spec["selector"].given and not _has_own_selector(before):
        keys.append("selector")
    if is_honest:
        broker = broker_of(before["template"]["spec"])
        defaults = default_policies(broker["name"].text() if broker else "")
        # A user's policy that the update removes is not a default, so Kubernetes rejects the change.
        keys += [key for key in defaults if not spec[key].given and before[key].value == defaults[key]]
        keys.append("podReplacementPolicy")
    return {key: before[key].value for key in keys if before[key].given}


def _has_own_selector(spec: Field) -> bool:
    return spec["manualSelector"].flag()


# --- fields that cannot change


def _fixed(template: Field, admitted: Field, cluster_id: str, is_honest: bool) -> Object:
    """The user's part of a template that Kubernetes never allows to change.

    `template` may be with or without the additions of admission.
    """
    pod = original_pod(template["spec"], admitted["spec"], cluster_id)
    # Admission always overwrites the restart policy.
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
    """The paths of values that differ; null counts as absent."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("name") != after.get("name"):
            # Items of a list with different names: the item was replaced, so its other fields are not compared.
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


# --- fields that can change


def _carried(old: Field, new: Field, keys: tuple[str, ...]) -> Object:
    """The members of `old`, with the values of `new` for `keys`."""
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
    """A container of the Job with the resources of the update."""
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
