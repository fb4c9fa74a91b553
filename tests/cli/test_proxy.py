"""Commands as clients of another instance: what is refused before they begin, and how they ended."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from headrace.cli import proxy
from headrace.cli.errors import CommandError


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`proxied(argv, version)`: the status; the connection is a pipe that says nothing."""
    for name in ("FLUX_URI", "FLUX_PROXY_REMOTE"):
        # So that what they were comes back.
        monkeypatch.setenv(name, "")
    ours, theirs = os.pipe()

    class Connection:
        def __init__(self, _uri: str) -> None:
            pass

        def attr_get(self, _name: str) -> str:
            return self.version

        def fileno(self) -> int:
            return ours

        version = "0.88.0"

    def run(argv: list[str], version: str = "0.88.0") -> int:
        monkeypatch.setattr(Connection, "version", version)
        monkeypatch.setattr(proxy, "Handle", Connection)
        return proxy.main(argv)

    yield run
    os.close(ours)
    os.close(theirs)


URI = "local:///run/x/local-0"


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(7)", 7), ("", 0), ("import os; os.kill(os.getpid(), 15)", 128 + 15)],
)
def test_the_commands_end_is_ours(proxied: Any, code: str, status: int) -> None:
    assert proxied([URI, sys.executable, "-c", code]) == status


def test_the_command_is_in_the_other_instance_and_not_in_a_job_of_this_one(
    proxied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLUX_JOB_ID", "FLUX_KVS_NAMESPACE", "FLUX_PROXY_REMOTE"):
        monkeypatch.setenv(name, "x")
    check = f"import os; e = os.environ; raise SystemExit(e['FLUX_URI'] != {URI!r} or 'FLUX_JOB_ID' in e"
    check += " or 'FLUX_KVS_NAMESPACE' in e or 'FLUX_PROXY_REMOTE' in e)"
    assert proxied([URI, sys.executable, "-c", check]) == 0


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [("/nosuch", 127, "No such file or directory"), ("/etc/passwd", 126, "Permission denied")],
)
def test_a_command_that_cannot_be_run_has_the_shells_status(proxied: Any, command: str, status: int, text: str) -> None:
    with pytest.raises(CommandError) as refused:
        proxied([URI, command])
    assert (refused.value.status, refused.value.text) == (status, f"{command}: {text}")


def test_another_version_is_refused_unless_forced(proxied: Any, capsys: Any) -> None:
    with pytest.raises(CommandError, match=r"the broker speaks Flux 0\.61\.2, this command 0\.88: use --force"):
        proxied([URI, "true"], "0.61.2")
    assert proxied(["--force", URI, "true"], "0.61.2") == 0
    assert "warning: the broker speaks Flux 0.61.2" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["", "nosuch", "\udcff", "bogus:1"])
def test_a_target_that_is_none_is_named(target: str) -> None:
    with pytest.raises(CommandError, match=r"^Unable to resolve .* to a URI: "):
        proxy.main([target, "true"])
