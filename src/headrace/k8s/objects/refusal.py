"""The Status with which admission refuses an object: each problem is a cause with its field, as kubectl shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .kinds import Kind
from .problems import Problem

_INVALID = 422


def refusal(kind: Kind, name: str, problems: Iterable[Problem]) -> dict[str, Any]:
    """The Status (metav1.Status) of an object with problems."""
    found = list(problems)
    causes = [{"reason": "FieldValueInvalid", "field": one.path, "message": one.rule} for one in found]
    return {
        "code": _INVALID,
        "reason": "Invalid",
        "message": "; ".join(str(one) for one in found),
        "details": {"name": name, "kind": kind.kind, "group": kind.group, "causes": causes},
    }
