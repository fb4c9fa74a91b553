"""The error for a name that leads to nothing, as each side of the SDK raises it."""

from __future__ import annotations


class NotFoundError(RuntimeError, ValueError):
    """A job, step, runtime or instance does not exist.

    `TrainerClient` documents RuntimeError, which its Kubernetes back end raises; its local ones raise ValueError.
    """
