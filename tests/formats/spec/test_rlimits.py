"""Resource limits of jobs."""

import resource

import pytest

from headrace.formats.spec import rlimits


def test_the_submitters_soft_limits_are_taken() -> None:
    limits = rlimits.collect()
    assert list(limits) == ["cpu", "fsize", "data", "stack", "core", "nofile", "as", "rss", "nproc"]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits["nofile"] == (-1 if soft == resource.RLIM_INFINITY else soft)


def test_rules_apply_in_order() -> None:
    assert rlimits.collect(["-*"]) == {}
    assert rlimits.collect(["-*", "nofile=99", "core=unlimited"]) == {"nofile": 99, "core": -1}
    assert list(rlimits.collect(["-*", "n*file"])) == ["nofile"]
    assert "cpu" not in rlimits.collect(["-cpu"])
    assert list(rlimits.collect(["-*,core=3", "nofile"])) == ["core", "nofile"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("nosuch=1", "Invalid rlimit 'nosuch'"),
        ("core=x", "Invalid value in core=x"),
        ("core=-1", "Invalid value in core=-1"),
        ("core=²", "Invalid value"),
        ("x*", "matches no limit"),
        ("-x*", "matches no limit"),
    ],
)
def test_errors_name_the_rule(rule: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rlimits.collect([rule])
