"""Waiting on a real Kubernetes.

What takes a second on a quiet machine takes minutes on a busy one, where pods of other tests are still ending, too. A
test that passes waits no longer than it must; one that fails says what it has seen (diagnosis.py). Each look is a
request, so looks are apart.
"""

from __future__ import annotations

from collections.abc import Callable

import waiting

# Seconds.
PATIENCE = 300.0
_PAUSE = 0.1
# The same for kubectl's own waiting.
TIMEOUT = f"--timeout={PATIENCE:.0f}s"


def until(met: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait until something holds. Raises AssertionError after `patience` seconds."""
    waiting.until(met, patience, _PAUSE)
