"""`import flux`: the Python bindings of Flux, using only the standard library.

Only this folder is in PYTHONPATH, so that a user's own Python finds the bindings and no other part of Headrace. The
package `headrace`, which has the formats and the handle, is loaded from this file's installation if the user's Python
does not have it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def _find_headrace() -> None:
    import importlib.util
    import os
    import sys

    if "headrace" in sys.modules:
        return
    # In a view, `site-packages` has a link to this folder.
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    spec = importlib.util.spec_from_file_location(
        "headrace", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["headrace"] = module
    spec.loader.exec_module(module)


_find_headrace()

from flux.core.handle import Flux  # noqa: E402

__all__ = ["Flux"]


def __getattr__(name: str) -> ModuleType:
    """Import `flux.util` with its first use, as few programs need it (PEP 562)."""
    if name == "util":
        import importlib

        return importlib.import_module("flux.util")
    raise AttributeError(f"module 'flux' has no attribute '{name}'")
