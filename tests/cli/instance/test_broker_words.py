"""Which words of `flux start`'s command line are the broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.instance import broker_words


@pytest.mark.parametrize(
    ("argv", "line", "brokers"),
    [
        (["-s2", "true", "-Sa=b"], ["-s2", "true", "-Sa=b"], []),
        (["-S", "a=b", "-s", "2", "x"], ["-S", "a=b", "-s", "2", "x"], ["-S", "a=b"]),
        (["-Sa=b", "-cD", "x"], ["-Sa=b", "-cD", "x"], ["-Sa=b", "-cD"]),
        (["--setattr=a=b", "--conf=k=v"], ["--setattr=a=b", "--conf=k=v"], ["--setattr=a=b", "--conf=k=v"]),
        (["--config-path", "D"], ["--config-path", "D"], ["--config-path", "D"]),
        (["--config=D", "--test-hosts=a"], ["--config=D", "--test-hosts=a"], ["--config=D"]),
        (["-o", "-v,-Sa=b", "x"], ["--broker-opts=-v,-Sa=b", "x"], ["-v", "-Sa=b"]),
        (["-o,-v", "x"], ["--broker-opts=,-v", "x"], ["-v"]),
        (["--broker-opts=--conf", "D", "x"], ["--broker-opts=--conf", "D", "x"], ["--conf"]),
        (["--verbose=3", "-v2", "-v"], ["-v"] * 6, []),
        (["--", "-v2", "-Sa=b"], ["--", "-v2", "-Sa=b"], []),
        (["--test-rundir", "-o", "x"], ["--test-rundir", "-o", "x"], []),
    ],
)
def test_a_line_is_split(argv: list[str], line: list[str], brokers: list[str]) -> None:
    assert broker_words.split(argv) == (line, brokers)


def test_a_broker_of_ones_own_is_found_in_the_execution_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_EXEC_PATH", raising=False)
    monkeypatch.delenv("FLUX_EXEC_PATH_PREPEND", raising=False)
    assert broker_words.program()[1] is False
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flux-broker").write_text("#!/bin/sh\n")
    (tmp_path / "two" / "flux-broker").chmod(0o755)
    monkeypatch.setenv("FLUX_EXEC_PATH", f"{tmp_path}/one:{tmp_path}/two")
    assert broker_words.program() == ([f"{tmp_path}/two/flux-broker"], True)
    (tmp_path / "one" / "flux-broker").chmod(0o755)
    monkeypatch.setenv("FLUX_EXEC_PATH_PREPEND", f"{tmp_path}/one")
    assert broker_words.program() == ([f"{tmp_path}/one/flux-broker"], True)
