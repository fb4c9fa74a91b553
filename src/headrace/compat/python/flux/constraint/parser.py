"""Constraint queries as text (RFC 35)."""

from __future__ import annotations

from typing import Any, Dict

from headrace.spec import constraint

ConstraintSyntaxError = constraint.ConstraintSyntaxError


class ConstraintParser:
    """Parses queries of properties, hosts and ranks into RFC 31 objects."""

    def parse(self, text: str) -> Dict[str, Any]:
        parsed: Dict[str, Any] = constraint.parse(text)
        return parsed
