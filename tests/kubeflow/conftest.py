"""A running instance, and clients whose jobs run on local brokers or in it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance import FLUX, LIMIT, clean_env

from headrace.kubeflow import HeadraceBackendConfig, TrainerClient
from waiting import until


@pytest.fixture(scope="session")
def instance_uri() -> Iterator[str]:
    """The address of an instance of two nodes."""
    with tempfile.TemporaryDirectory(prefix="hrk-", dir="/tmp") as folder:
        told = Path(folder, "uri")
        text = f"flux getattr local-uri > {told}.new && mv {told}.new {told}; sleep infinity"
        command = [FLUX, "start", "--test-size=2", "sh", "-c", text]
        with subprocess.Popen(command, env=clean_env(TMPDIR=folder), start_new_session=True) as process:
            until(told.exists)
            yield told.read_text().strip()
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(LIMIT)


@pytest.fixture(params=["process", "statedir", "instance"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrainerClient]:
    """A client of each place where jobs run; its jobs are deleted in the end."""
    place = {
        "process": lambda: {},
        "statedir": lambda: {"statedir": tmp_path / "jobs"},
        "instance": lambda: {"uri": request.getfixturevalue("instance_uri")},
    }[request.param]()
    found = TrainerClient(HeadraceBackendConfig(**place))
    yield found
    for job in found.list_jobs():
        found.delete_job(job.name)
