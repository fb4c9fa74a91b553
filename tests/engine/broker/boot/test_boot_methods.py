"""The boot methods that an attribute or a variable asks for, in their order."""

from __future__ import annotations

import pytest

from headrace.engine.broker.boot.boot import BootError, asked_methods, method_in_test_instance


@pytest.mark.parametrize(
    ("attribute", "variable", "asked", "in_test"),
    [
        ("", "", [], ""),
        ("", "libpmi2 simple single", ["libpmi2", "simple", "single"], "simple"),
        ("", "single simple", ["single", "simple"], "single"),
        ("config", "single", ["config"], "config"),
        ("", "slurm", ["slurm"], ""),
    ],
)
def test_methods_that_are_asked_for(attribute: str, variable: str, asked: list[str], in_test: str) -> None:
    attrs, env = {"broker.boot-method": attribute}, {"FLUX_PMI_CLIENT_METHODS": variable}
    assert asked_methods(attrs, env) == asked
    assert method_in_test_instance(attrs, env) == in_test


def test_a_method_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BootError, match="plugin matching 'x' not found"):
        asked_methods({}, {"FLUX_PMI_CLIENT_METHODS": "simple x"})
