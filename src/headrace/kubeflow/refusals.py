"""Requests of the SDK that brokers cannot carry out, each with an alternative. Pure."""

from __future__ import annotations

from typing import Any

from kubeflow.trainer.backends.base import RuntimeBackend
from kubeflow.trainer.types import types

_NAME = "Name(...), which gives the job a name to find it by"
# Alternatives to the SDK's options for Kubernetes, by the options' names.
_INSTEAD = {
    "Labels": _NAME,
    "Annotations": _NAME,
    "ActiveDeadlineSeconds": "delete_job, when wait_for_job_status(timeout=...) raises TimeoutError",
    "TrainerCommand": "CustomTrainer(func=...) with a function that runs it, or `headrace train run` with a file",
    "TrainerArgs": "CustomTrainer(func_args=...), or `headrace train run` with a file",
}
_PATCH = "a runtime of your own, which HeadraceBackendConfig(runtimes=...) adds"


def check_request(initializer: types.Initializer | None, trainer: Any) -> types.CustomTrainer | None:
    """The trainer, if brokers can carry out the request. Raises ValueError otherwise."""
    for kind in ("dataset", "model"):
        found = getattr(initializer, kind, None)
        if found is not None:
            how = f"initializer.{kind}: {type(found).__name__} needs Kubernetes or containers"
            uri = getattr(found, "storage_uri", "")
            raise ValueError(f"{how}: fetch {uri} in the training function, or before, as it sees this machine's files")
    if trainer is None or isinstance(trainer, types.CustomTrainer):
        return trainer
    if isinstance(trainer, types.CustomTrainerContainer):
        raise ValueError(
            f"CustomTrainerContainer needs Kubernetes for its image {trainer.image}: CustomTrainer(func=...) runs a "
            "function, and `headrace train run` the command of a file, both with the programs of this machine"
        )
    if isinstance(trainer, types.BuiltinTrainer):
        raise ValueError(
            "BuiltinTrainer needs Kubernetes, where its runtimes bring torchtune: CustomTrainer(func=..., "
            "packages_to_install=['torchtune']) with a function that calls it"
        )
    raise ValueError(f"trainer: must be a CustomTrainer, not {type(trainer).__name__}")


def name_of(options: list[Any] | None, trainer: Any, backend: RuntimeBackend) -> str:
    """The name of the job in `options`, "" without one. Raises ValueError for other options."""
    found: dict[str, Any] = {}
    for option in options or ():
        kind = type(option).__name__
        instead = _INSTEAD.get(kind, _PATCH)
        try:
            option(found, trainer, backend)
        except ValueError as exc:
            raise ValueError(f"{exc}; instead: {instead}") from None
        metadata = found.get("metadata", {})
        if set(found) - {"metadata"} or set(metadata) - {"name"}:
            raise ValueError(f"{kind} needs Kubernetes; instead: {instead}")
    name = found.get("metadata", {}).get("name")
    if name is not None and (not isinstance(name, str) or not name):
        raise ValueError(f"Name: must be text, not {name!r}")
    return name or ""
