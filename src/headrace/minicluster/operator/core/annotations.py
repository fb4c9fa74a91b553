"""The annotations by which the operator keeps facts at its own objects. Pure."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

# The fingerprints of the spec that an object was made from, of its content, and (on a Job) of the fields that need
# another Job and of the brokers' configuration.
SPEC = "flux-framework.org/headrace-spec"
CONTENT = "flux-framework.org/headrace-content"
RECREATES = "flux-framework.org/headrace-recreates"
CONFIG = "flux-framework.org/headrace-config"
# Set on a Job whose pods did not run in time; the value says which resource was short.
START_TIMEOUT = "flux-framework.org/headrace-start-timeout"
# Set on the Jobs of a MiniCluster one of whose groups has failed; the value says which, and why.
GROUP_FAILED = "flux-framework.org/headrace-group-failed"
# Set on a Job that follows others of its MiniCluster: the failures of their pods that count towards spec.backoffLimit.
FORMER_FAILURES = "flux-framework.org/headrace-former-failures"
# Set on a Job while it is suspended by the operator.
SUSPENDED_BY_US = "flux-framework.org/headrace-suspended"


def annotations_of(item: Object | None) -> dict[str, str]:
    """The annotations of an object; {} without one."""
    return ((item or {}).get("metadata") or {}).get("annotations") or {}


def annotated(body: Object, annotations: dict[str, str]) -> Object:
    """A copy of an object with more annotations."""
    return {**body, "metadata": {**body["metadata"], "annotations": {**annotations_of(body), **annotations}}}
