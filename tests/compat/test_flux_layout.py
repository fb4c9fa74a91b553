"""Names are where programs for Flux import them from; what is not there is in the manual."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, os.path.join(ROOT, "src", "headrace", "compat", "python"))


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
    absent = re.findall(r"`(flux\.[\w.]+)`(?! is there)", manual.partition("Of `import flux`")[2].partition("## ")[0])
    assert "flux.cli" in absent
    for module in absent:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)
