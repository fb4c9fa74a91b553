"""Rules that make a job's environment."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import envrules
from headrace.formats.spec.envrules import EnvRuleError

CURRENT = {"PATH": "/bin", "HOME": "/root", "OMP_A": "1", "OMP_B": "2", "FLUX_PROXY_REMOTE": "x"}


def variables(*rules: str) -> dict:  # type: ignore[type-arg]
    return envrules.apply(rules, CURRENT).variables


def test_no_rule_copies_the_environment_but_what_is_the_proxys() -> None:
    assert variables() == {"PATH": "/bin", "HOME": "/root", "OMP_A": "1", "OMP_B": "2"}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["-*"], {}),
        (["-OMP*", "-HOME"], {"PATH": "/bin"}),
        (["-/^OMP_[AB]$/"], {"PATH": "/bin", "HOME": "/root"}),
        (["-/P/"], {"HOME": "/root"}),
        (["-*", "OMP*"], {"OMP_A": "1", "OMP_B": "2"}),
        (["-*", "/_B$"], {"OMP_B": "2"}),
        (["-*", "A=1", "B=$A:${PATH}", "C=$$x"], {"A": "1", "B": "1:/bin", "C": "$x"}),
        (["-*", "PATH=x", "PATH"], {"PATH": "x"}),
        (["-*", "NOSUCH*"], {}),
        (["-*", "A="], {"A": ""}),
    ],
)
def test_rules_apply_in_order(rules: list, expected: dict) -> None:  # type: ignore[type-arg]
    assert variables(*rules) == expected


def test_values_with_templates_are_left_to_the_shell() -> None:
    made = envrules.apply(["-*", "A={{tmpdir}}/x", "B=1"], CURRENT)
    assert (made.variables, made.expand) == ({"B": "1"}, {"A": "{{tmpdir}}/x"})
    assert envrules.apply(["A={{x}}", "A=1"], CURRENT).expand == {}


def test_rules_are_read_from_files(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("-*\n\n# comment\nA=1\nPATH\n")
    assert variables(f"^{rules}", "B=$A") == {"A": "1", "PATH": "/bin", "B": "1"}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("A=$NOSUCH", "env: Variable NOSUCH not found"),
        ("A=${B:-default}", r"Unable to substitute A=\$\{B:-default\}"),
        ("-/(/", "is not a regular expression"),
        ("=x", "has no name before '='"),
    ],
)
def test_errors_name_the_rule(rule: str, message: str) -> None:
    with pytest.raises(EnvRuleError, match=message):
        variables(rule)


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(f"^{rules}\n")
    with pytest.raises(EnvRuleError, match="does one include itself"):
        variables(f"^{rules}")


@given(st.lists(st.text(alphabet="-/AP=$*[({.x", max_size=8), max_size=4))
def test_any_rules_give_an_environment_or_an_error(rules: list) -> None:  # type: ignore[type-arg]
    try:
        made = envrules.apply(rules, CURRENT)
    except EnvRuleError:
        return
    assert not made.variables.keys() & made.expand.keys()
