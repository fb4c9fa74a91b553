"""Validation problems of an object, each with its path in the document and the broken rule. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .kinds import Kind

# The HTTP status for an invalid object.
_INVALID = 422
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
LABEL_RULE = "use lower case letters, digits and '-', and begin and end with a letter or digit"


class Problem(NamedTuple):
    """One problem: `path` in the document ("" is the whole file), and the rule that is broken."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" if self.path else self.rule


def refusal(kind: Kind, name: str, problems: Iterable[Problem]) -> dict[str, Any]:
    """The Status (metav1.Status) with which admission rejects an object.

    Each problem is a cause with its field, which kubectl shows.
    """
    found = list(problems)
    causes = [{"reason": "FieldValueInvalid", "field": one.path, "message": one.rule} for one in found]
    return {
        "code": _INVALID,
        "reason": "Invalid",
        "message": "; ".join(str(one) for one in found),
        "details": {"name": name, "kind": kind.kind, "group": kind.group, "causes": causes},
    }
