"""Names are where programs for Flux import them from; what is not there is in the manual."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BINDINGS = os.path.join(ROOT, "src", "headrace", "wire", "compat", "python")
ENVIRONMENT = {**os.environ, "PYTHONPATH": BINDINGS}
sys.path.insert(0, BINDINGS)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("flux.job.submit", "SubmitFuture submit submit_async submit_get_id"),
        ("flux.job.kill", "cancel cancel_async job_raise job_raise_async kill kill_async"),
        ("flux.job.wait", "JobWaitFuture JobWaitResult result result_async wait wait_async wait_get_status"),
        ("flux.job.timeleft", "timeleft"),
        ("flux.job.list", "JobList JobListIdRPC JobListRPC get_job job_list job_list_id job_list_inactive"),
        ("flux.job.kvslookup", "JobInfoLookupRPC JobKVSLookup job_info_lookup job_kvs_lookup"),
        ("flux.job.info", "JobInfo JobInfoFormat job_fields_to_attrs statetostr"),
        ("flux.resource.ResourceSet", "ResourceSet"),
        ("flux.resource.Rlist", "Rlist"),
    ],
)
def test_a_module_has_the_names_that_its_package_has(module: str, names: str) -> None:
    package = importlib.import_module(module.rpartition(".")[0])
    found = importlib.import_module(module)
    for name in names.split():
        assert getattr(package, name, getattr(found, name)) is getattr(found, name)


# What is reached through `flux` after `import flux`, and after `import flux.job`, in Flux.
WITH_FLUX = [
    *("flux.constants.FLUX_NODEID_ANY", "flux.core.handle.Flux", "flux.core.inner.raw", "flux.util.parse_fsd"),
    *("flux.core.watchers.TimerWatcher", "flux.future.Future", "flux.message.Message", "flux.rpc.RPC"),
]
WITH_JOB = [
    *("flux.conf_builtin.conf_builtin_get", "flux.constraint.parser.ConstraintParser", "flux.hostlist.Hostlist"),
    *("flux.eventlog.EventLogFormatter", "flux.idset.IDset", "flux.job.info", "flux.kvs.get", "flux.uri.JobURI"),
    *("flux.resource.SchedResourceList", "flux.resource.ResourceSet", "flux.resource.list.resource_list"),
    "flux.resource.status.resource_status",
]


def evaluated(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(("module", "names"), [("flux", WITH_FLUX), ("flux.job", WITH_FLUX + WITH_JOB)])
def test_an_import_brings_the_modules_that_it_brings_in_flux(module: str, names: list[str]) -> None:
    for name in names:
        assert evaluated(f"import {module}\nassert {name} is not None") == ""


def test_the_modules_of_jobs_come_with_flux_job_alone() -> None:
    assert "module 'flux' has no attribute 'resource'" in evaluated("import flux\nflux.resource")


def test_functions_keep_the_names_that_modules_have_too() -> None:
    import flux.job
    import flux.job.submit
    import flux.job.wait

    assert [type(getattr(flux.job, name)).__name__ for name in ("submit", "kill", "wait", "timeleft")] == [
        "function"
    ] * 4
    assert [type(getattr(flux.job, name)).__name__ for name in ("list", "info", "event", "stats")] == ["module"] * 4


def test_modules_that_the_manual_calls_absent_are() -> None:
    manual = (ROOT / "docs" / "user" / "options.md").read_text(encoding="utf-8")
    absent = re.findall(
        r"`(flux\.[\w.]+)`(?! exists)", manual.partition("parts of `import flux` are")[2].partition("## ")[0]
    )
    assert "flux.cli" in absent
    for module in absent:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)
