"""`import flux`: the Python bindings of Flux, using only the standard library.

Only the folder of this package is in PYTHONPATH, so that a user's own Python finds the bindings and no other part of
Headrace. The package `headrace`, which has the formats and the handle, is loaded from the installation of this file if
the user's Python does not have it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def _find_headrace() -> None:
    import importlib.util
    import os

    if "headrace" in sys.modules:
        return
    # In a view, `site-packages` has a link to this folder.
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.normpath(os.path.join(here, *[".."] * 4))
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


# In Flux, `import flux` and `import flux.job` make these modules attributes of `flux`. Few programs need them, so each
# is imported on first use (PEP 562).
_WITH_FLUX = {"util": "flux.util"}
_WITH_JOB = {
    "conf_builtin": "flux.conf_builtin",
    "constraint": "flux.constraint.parser",
    "eventlog": "flux.eventlog",
    "hostlist": "flux.hostlist",
    "resource": "flux.resource",
    "uri": "flux.uri",
}


def __getattr__(name: str) -> ModuleType:
    module = _WITH_FLUX.get(name) or (_WITH_JOB.get(name) if "flux.job" in sys.modules else None)
    if module is None:
        raise AttributeError(f"module 'flux' has no attribute '{name}'")
    import importlib

    importlib.import_module(module)
    return sys.modules[f"flux.{name}"]
