"""Brokers that a launcher starts together: when one can never join, the instance ends with the reason."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from instance import FLUX, start

# Exchanges addresses and keys with the other brokers, and ends.
MEETS = """
import os
from headrace.engine.broker.boot.pmi import from_launcher, launcher
method, client = launcher(os.environ)
from_launcher(method, client, os.environ, "/nowhere", {})
"""


@pytest.mark.parametrize("topo", ["kary:2", "kary:1"])
def test_a_broker_that_has_met_the_others_and_does_not_come_ends_the_instance(topo: str) -> None:
    options = f"-Stbon.connect_timeout=5s -Stbon.topo={topo}"
    script = f'test $FLUX_TASK_RANK = 2 && exec $PYTHON -c "$MEETS"; exec {FLUX} start {options} true'
    # By default a job ends some time after its first task; an instance, as `flux alloc` makes one, does not.
    job = ["flux", "run", "-N3", "-n3", "-o", "exit-timeout=none", "sh", "-c", script]
    done = start("--test-size=3", *job, PYTHON=sys.executable, MEETS=MEETS)
    assert "3 brokers are needed, and " in done.err
    assert " (rank 2) cannot join any more: ending the instance" in done.err
    assert done.rc == 1


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make network namespaces")
def test_brokers_of_a_host_without_loopback_end_with_the_reason() -> None:
    if subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        pytest.skip("this machine makes no network namespaces")
    # A namespace of its own has the interface lo, which is down.
    done = start("--test-size=2", "flux alloc -N2 true", prefix=("unshare", "--net"))
    assert done.rc == 1
    assert "at 127.0.0.1: Network is unreachable (is the interface lo up?)" in done.err
