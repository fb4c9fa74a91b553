"""Handles, watchers and reactors, under the names of flux-core's bindings."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import `flux.core.inner`, which few programs need, with its first use (PEP 562)."""
    if name != "inner":
        raise AttributeError(f"module 'flux.core' has no attribute '{name}'")
    import importlib

    return importlib.import_module("flux.core.inner")
