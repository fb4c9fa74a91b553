"""What stays of a MiniCluster that kubectl had applied: told where it has an effect, with the patch that removes it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.client.apply import find_stale_fields, removal

Object = dict[str, Any]
HEAD = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster"}
CONTAINERS = [{"command": "x"}]


def document(**spec: Any) -> Object:
    return {**HEAD, "metadata": {"name": "a"}, "spec": {"containers": CONTAINERS, **spec}}


def owned(manager: str, *paths: str, operation: str = "Update") -> Object:
    fields: Object = {}
    for path in paths:
        inside = fields
        for part in path.split("."):
            inside = inside.setdefault(f"f:{part}", {})
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def stored(*entries: Object, **spec: Any) -> Object:
    return {**document(**spec), "metadata": {"name": "a", "managedFields": list(entries)}}


def test_fields_of_several_managers_are_told_with_one_patch_for_all() -> None:
    entries = (
        owned("kubectl-client-side-apply", "spec.flux.optionFlags", "spec.containers"),
        owned("headrace-mini", "spec.size"),
    )
    stale = find_stale_fields(stored(*entries, size=3, flux={"optionFlags": "-c1", "logLevel": 6}), document())
    assert stale is not None
    assert stale.fields == ("spec.flux.optionFlags", "spec.size")
    assert str(stale).endswith(" stay as set by headrace-mini, kubectl-client-side-apply, though not in the file")
    patch = '{"spec": {"flux": {"optionFlags": null}, "size": null}}'
    assert removal(stale, "team", "a") == f"kubectl patch minicluster a -n team --type merge -p '{patch}'"


@pytest.mark.parametrize(
    ("entry", "spec", "applied"),
    [
        (owned("kubectl", "spec.tasks", operation="Apply"), {"tasks": 2}, {"tasks": 2}),
        (owned("kubectl", "spec.cleanup", "spec.tasks"), {"cleanup": False, "tasks": 1}, {}),
        (owned("headrace-mini", "spec.tasks", operation="Apply"), {"tasks": 2}, {}),
        (owned("kube-controller-manager", "spec.size"), {"size": 2}, {}),
        (owned("kubectl", "spec.tasks"), {}, {}),
        (owned("kubectl", "metadata.annotations.x"), {"tasks": 2}, {}),
    ],
    ids=["in the file", "a default", "of this apply", "an autoscaler's", "no longer there", "not of the spec"],
)
def test_what_does_not_stay_or_has_no_effect_is_not_told(entry: Object, spec: Object, applied: Object) -> None:
    assert find_stale_fields(stored(entry, **spec), document(**applied)) is None
