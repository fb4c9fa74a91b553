"""The images of a release, and the resources that a container of one of its programs requests."""

from __future__ import annotations

from typing import Any

from ... import __version__

# The registry to which a release is published (.github/workflows/release.yml).
REGISTRY = "ghcr.io/headrace"
DEFAULT_OPERATOR = f"{REGISTRY}/headrace-operator:{__version__}"
DEFAULT_VIEW = f"{REGISTRY}/headrace-view:{__version__}"
# The user of our images, for pods that set no user: the number that images without users commonly have.
UNPRIVILEGED = 65532
RESOURCES: dict[str, Any] = {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": {"memory": "256Mi"}}


def is_release(version: str = __version__) -> bool:
    """True if the images of a version are published: not for development versions (PEP 440, `.devN`)."""
    return ".dev" not in version
