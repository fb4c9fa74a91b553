"""MiniCluster documents for tests, and the problems that validation finds in them."""

from __future__ import annotations

from typing import Any

from headrace.minicluster.api import fields
from headrace.minicluster.api.fields import InvalidMiniCluster, Record
from headrace.minicluster.api.validate import check


def document(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A MiniCluster named `c`; `spec` may leave the containers out."""
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c", **metadata}}
    return {**head, "spec": {"containers": [{"command": "x"}], **spec}}


def all_records() -> list[type[Record]]:
    """The classes of records in the schema."""
    return [
        one for one in vars(fields).values() if isinstance(one, type) and issubclass(one, Record) and one is not Record
    ]


def problems(spec: dict[str, Any], **metadata: Any) -> dict[str, str]:
    """Path and rule of all problems of such a MiniCluster."""
    try:
        check(document(spec, **metadata))
    except InvalidMiniCluster as exc:
        return {problem.path: problem.rule for problem in exc.problems}
    return {}
