"""Times in the format of the Kubernetes API: RFC 3339, UTC, whole seconds (metav1.Time)."""

from __future__ import annotations

from datetime import datetime, timezone


def text_of(moment: float) -> str:
    """A time in the API's format (RFC 3339, whole seconds)."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """The inverse of `text_of`; fractions of seconds are accepted."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
