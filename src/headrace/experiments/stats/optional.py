"""The libraries of the extra `experiments`, imported when a function needs them."""

from __future__ import annotations

from types import ModuleType

_MISSING = "needs numpy and scipy: pip install '.[experiments]' in a copy of the repository"


class MissingExtra(Exception):
    """numpy or scipy is not installed; the message names the extra."""

    def __init__(self) -> None:
        super().__init__(_MISSING)


def numpy() -> ModuleType:
    """Raises MissingExtra."""
    try:
        import numpy
    except ImportError:
        raise MissingExtra from None
    return numpy


def scipy_stats() -> ModuleType:
    """Raises MissingExtra."""
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra from None
    return stats  # type: ignore[no-any-return]
