"""The service that an instance starts by the table `[headrace.api]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from instance import start

from headrace.engine.modules.api import options

# Other tests have services of the same user beside that of the instance.
URL = "headrace api url --json 2>err | jq -c 'select(.uri == env.FLUX_URI)' >url"
WAIT = f"until {URL}; test -s url; do sleep .05; done\n"
PID = "$(flux module stats api | jq .pid)"
ASK = "curl -so page -w '%{http_code}\\n' -c jar -L"


def run(tmp_path: Path, config: str, script: str) -> Any:
    (tmp_path / "config.toml").write_text(config)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = start("-cconfig.toml", "sh", "-c", script, cwd=str(tmp_path), PATH=path)
    assert done.left == []
    return done


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({}, []),
        ({"port": 0, "auth": "none"}, ["--port=0", "--auth=none"]),
        ({"behind-proxy": True, "name": ["a", "b"]}, ["--behind-proxy", "--name=a", "--name=b"]),
        ({"behind-proxy": False}, []),
    ],
)
def test_keys_of_the_table_are_options(table: dict[str, Any], found: list[str]) -> None:
    assert options({"headrace": {"api": table}}) == found
    assert options({}) == []


def test_the_service_is_there_has_new_addresses_comes_again_and_ends_with_the_instance(tmp_path: Path) -> None:
    script = f"""{WAIT}
{ASK} $(jq -r .login url); grep -c "<h1>Jobs</h1>" page
{ASK.replace("jar", "other")} $(jq -r .login url)
{URL}; {ASK.replace("jar", "other")} $(jq -r .login url)
headrace api url | sed -n "1s/:[0-9][0-9]*.*//p"
pid={PID}; kill -9 $pid
while test "{PID}" = $pid; do sleep .05; done
{WAIT}
{ASK} $(jq -r .login url)
flux module stats api | jq .starts
flux dmesg | grep -c "api.*the service has ended: Killed"
flux dmesg | grep -c "token=" || true
"""
    done = run(tmp_path, "[headrace.api]\nport = 0\n", script)
    assert done.out.splitlines() == ["200", "1", "401", "200", "Open http://127.0.0.1", "200", "2", "1", "0"], done.err


def test_through_a_proxy_it_has_one_line(tmp_path: Path) -> None:
    script = f"""{WAIT}
url=$(jq -r .url url)
flux proxy "$FLUX_URI" headrace api url --json | jq -c --arg url "$url" 'select(.url == $url) | keys'
"""
    assert run(tmp_path, "[headrace.api]\nport = 0\n", script).out.splitlines() == ['["login","uri","url"]']


def test_what_the_service_says_is_in_the_log_and_it_is_tried_again_and_reconfigured(tmp_path: Path) -> None:
    script = f"""
until test "$(flux dmesg | grep -c 'can be reached from other machines')" -ge 2; do sleep .05; done
headrace api url; echo $?
printf '[headrace.api]\nport = 0\nauth = "none"\n' >config.toml; flux config reload
{WAIT}
curl -s "$(jq -r .url url)/v2/me" | jq -r .auth; jq -c keys url
"""
    done = run(tmp_path, '[headrace.api]\nhost = "0.0.0.0"\n', script)
    assert done.out.splitlines()[-3:] == ["1", "none", '["uri","url"]'] and "is not up yet" in done.err


def test_without_the_table_there_is_none(tmp_path: Path) -> None:
    done = run(tmp_path, "", f"{URL}; cat url; flux module list | grep -c '^api '")
    assert done.out == "0\n"


def test_a_wrong_key_of_the_table_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "[headrace.api]\nport = 'x'\n", "true")
    assert done.rc and "headrace.api.port" in done.err
