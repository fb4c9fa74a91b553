"""Finding and importing modules: our services by name (`modules.SERVICES`), and .py files by path."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from headrace.engine.broker import bare_imports


def name_of(module: ModuleType, path: str) -> str:
    """The name that a module is loaded under by default."""
    name: str = getattr(module, "NAME", "") or os.path.basename(path).removesuffix(".py").replace("_", "-")
    return name


def find(path: str) -> ModuleType | None:
    """Import the module with that name or .py file. None if there is none."""
    if path.endswith(".py"):
        if not os.path.exists(path):
            return None
        from headrace.formats.spec import python_file

        # A user's module may import anything, including modules that the start of a broker skips.
        bare_imports.complete()
        return python_file.load("headrace_module_" + os.path.basename(path)[:-3], path)
    return import_service(path)


def import_service(name: str) -> ModuleType | None:
    """Import the module of a service (`headrace.engine.modules.SERVICES`). None for any other name."""
    file = importlib.import_module("headrace.engine.modules").SERVICES.get(name.replace("_", "-"))
    return importlib.import_module(f"headrace.engine.modules.{file}") if file else None


def import_leaders_parts() -> None:
    """Import the parts of services that only rank 0 runs, and needs as soon as it starts."""
    for file in importlib.import_module("headrace.engine.modules").LEADERS_PARTS:
        importlib.import_module(f"headrace.engine.modules.{file}")
