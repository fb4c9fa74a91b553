"""The one error of this package."""

from __future__ import annotations


class KubeError(Exception):
    """Something a user can act on: what failed, where, and what to look at."""
