"""`headrace api url`: the services of this user on this machine, whichever instance they serve."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.api.test_api_command import in_instance

from headrace.cli.main import headrace
from headrace.service import running

LOGIN = {"uri": "local:///a", "url": "http://127.0.0.1:1", "login": "http://127.0.0.1:1/login?token=x"}
SOCKET = {"uri": "local:///b", "url": "http://localhost", "socket": "/api"}


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nosuch")


def test_each_service_has_a_line(nowhere: None, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(running, "found", lambda: [SOCKET])
    assert headrace(["api", "url"]) == 0
    assert capfd.readouterr() == ("Open http://localhost through /api\n", "")
    monkeypatch.setattr(running, "found", lambda: [SOCKET, LOGIN])
    monkeypatch.setenv("FLUX_URI", "local:///a")
    assert headrace(["api", "url"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "Open http://127.0.0.1:1/login?token=x    # local:///a",
        "Open http://localhost through /api    # local:///b",
    ]
    assert headrace(["api", "url", "--json"]) == 0
    assert list(map(json.loads, capfd.readouterr().out.splitlines())) == [LOGIN, SOCKET]


def test_where_none_runs_it_says_how_to_start_one(nowhere: None, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(running, "found", list)
    assert headrace(["api", "url"]) == 1
    out, err = capfd.readouterr()
    assert out == "" and "no service of yours runs on this machine" in err and "headrace api start" in err


def test_a_service_of_the_instance_that_is_not_up_is_told_beside_others(
    nowhere: None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def not_up() -> Any:
        raise OSError(errno.EAGAIN, "the service is not up yet")

    monkeypatch.setattr(running, "found", lambda: [LOGIN])
    monkeypatch.setattr("headrace.cli.api.main._of_instance", not_up)
    assert headrace(["api", "url"]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("Open ") and "is not up yet" in err


def test_another_browser_and_another_script_get_in_where_the_first_address_was_used(tmp_path: Path) -> None:
    """The terminal has no FLUX_URI: the user's services are found without."""
    script = """
curl -so /dev/null -w '%{http_code}\n' "$(jq -r .login ready)"
curl -s "$(jq -r .login ready)" | grep -c "headrace api url"
for turn in 1 2; do
    env -u FLUX_URI headrace api url --json | jq -c --arg url "$(jq -r .url ready)" 'select(.url == $url)' >new
    curl -so /dev/null -w '%{http_code}\n' "$(jq -r .login new)"
    curl -so /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(jq -r .token new)" $(jq -r .url new)/v2/me
done
"""
    done = in_instance(tmp_path, script, "headrace api start --port 0 --json")
    assert done.out.splitlines() == ["303", "1", "303", "200", "303", "200", "ended 0"]
