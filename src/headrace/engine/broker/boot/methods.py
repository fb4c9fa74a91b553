"""Which boot methods a user asks for, by an attribute or a variable.

Apart from the methods themselves (`pmi.py`), whose clients the brokers of a test instance do without.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engine.broker.boot.boot import BootError

_OURS = ("config", "pmi2", "simple", "single", "slurm")
# Methods of Flux that Headrace has not: where others are named beside them, those are tried.
_NOT_HERE = ("cray-pals", "libpmi", "libpmi1", "libpmi2", "pmix")


def asked_methods(attrs: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The boot methods in the attribute `broker.boot-method`, or in FLUX_PMI_CLIENT_METHODS, in the order of their
    trial.

    Empty if all methods may be tried. Raises BootError for a method that Flux does not have.
    """
    names = (attrs.get("broker.boot-method") or env.get("FLUX_PMI_CLIENT_METHODS", "")).split()
    for name in names:
        if name not in (*_OURS, *_NOT_HERE):
            raise BootError(f"bootstrap: plugin matching '{name}' not found")
    return names


def method_in_test_instance(attrs: Mapping[str, str], env: Mapping[str, str]) -> str:
    """The first requested method among those of a test instance (`config`, `simple` and `single`); "" if none is
    requested.

    Raises BootError.
    """
    return next((name for name in asked_methods(attrs, env) if name in ("config", "simple", "single")), "")
