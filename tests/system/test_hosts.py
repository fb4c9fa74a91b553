"""Host names of an instance: jobs, drains and excludes reach the broker on the host that is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from instance import FLUX, clean_env, start

# The management node comes first in the instance, and the resources are listed in another order.
HOSTS, RESOURCES = "mgmt,n1,n2,n3", "n3,n1,n2"
RUN = "flux run --requires=host:{} flux getattr hostname"
LOOK = f"""
for host in n1 n2 n3; do flux run --requires=host:$host flux getattr hostname; done
flux resource drain n3 broken
flux resource drain -no '{{ranks}} {{nodelist}}'
{RUN.format("mgmt")} 2>&1 | grep -o "host 'mgmt' not found"
flux resource status -s exclude -no '{{nodelist}}'
flux config load <<end
[resource]
exclude = "n1"
end
flux resource status -s exclude -no '{{nodelist}}'
flux run -N1 flux getattr rank
"""
SEEN = "n1\nn2\nn3\n3 n3\nhost 'mgmt' not found\n\nn1\n2\n"


def resources(hosts: str) -> str:
    return f"[resource]\nnoverify = true\n[[resource.config]]\nhosts = '{hosts}'\ncores = '0'\n"


def bootstrap(folder: Path) -> str:
    subprocess.run([FLUX, "keygen", f"{folder}/cert"], check=True, env=clean_env())
    ends = f"default_bind = 'ipc://{folder}/%h'\ndefault_connect = 'ipc://{folder}/%h'\n"
    return f"[bootstrap]\ncurve_cert = '{folder}/cert'\n{ends}hosts = [{{host = '{HOSTS}'}}]\n"


@pytest.mark.parametrize("booted", ["from a table", "forked"])
def test_each_command_finds_the_broker_on_the_host(booted: str, tmp_path: Path) -> None:
    config = tmp_path / "conf.toml"
    config.write_text((bootstrap(tmp_path) if booted == "from a table" else "") + resources(RESOURCES))
    done = start("-s4", f"--test-hosts={HOSTS}", "-c", str(config), LOOK)
    assert (done.out, done.err) == (SEEN, "")


def test_resources_of_a_host_that_cannot_join_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "conf.toml"
    config.write_text(bootstrap(tmp_path) + resources("n[1-5]"))
    done = start("-s4", f"--test-hosts={HOSTS}", "-c", str(config), "true")
    assert done.rc != 0
    assert "resource.config: hosts n[4-5] not found in mgmt,n[1-3] (bootstrap.hosts)" in done.err


def test_a_drain_follows_its_host_over_a_restart(tmp_path: Path) -> None:
    state = f"-Sstatedir={tmp_path}"
    assert start("-s3", "--test-hosts=a,b,c", state, "flux resource drain b broken").rc == 0
    done = start("-s3", "--test-hosts=c,a,b", state, "flux resource drain -no '{ranks} {nodelist} {reason}'")
    assert done.out == "2 b broken\n"


def test_a_node_of_another_name_is_drained_unless_names_are_not_verified() -> None:
    options = ("--test-hosts=a,b", "-s2", "--conf=resource.config=[{hosts = 'a,x', cores = '0'}]")
    listing = "flux resource drain -no '{ranks} {reason}'"
    assert (
        start(*options, f"flux resource eventlog -w drain >/dev/null; {listing}").out
        == "1 got hostname 'b', expected 'x'\n"
    )
    assert start(*options, "--conf=resource.verify={hostname = 'ignore', core = 'allow-extra'}", listing).out == ""
