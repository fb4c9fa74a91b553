"""The Kubeflow SDK on Headrace: `TrainerClient().train(...)` on local brokers or in a running instance.

The extra `kubeflow` installs the SDK. Nothing else in Headrace imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import HeadraceBackendConfig
    from .client import TrainerClient

__all__ = ["HeadraceBackendConfig", "TrainerClient"]


def __getattr__(name: str) -> Any:
    """Import the SDK on first use.

    The import takes a second, and the processes that run jobs do not need it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import backend, client
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "kubeflow":
            raise
        raise ImportError(
            "the Kubeflow SDK is not installed: pip install '.[kubeflow]' in a copy of the repository"
        ) from exc
    return {"HeadraceBackendConfig": backend.HeadraceBackendConfig, "TrainerClient": client.TrainerClient}[name]
