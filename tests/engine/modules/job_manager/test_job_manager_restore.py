"""Jobs of another instance: what makes no sense is refused job by job, with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.jobs.pack import event_line
from headrace.engine.modules.job_manager import restore
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.store import Store
from headrace.formats.spec.job_state import INACTIVE

SPEC: dict[str, Any] = {
    "version": 1,
    "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
    "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 0}},
}
SUBMIT = ("submit", {"userid": 7, "urgency": 16, "flags": 0})


def log(*events: tuple[str, Any]) -> str:
    lines = (event_line((1.0 + number, name, context)) for number, (name, context) in enumerate(events))
    return b"".join(lines).decode()


def restored(folder: Path, jobspec: Any, eventlog: str) -> Any:
    core, store = Core(Queues([]), 7), Store(str(folder))
    try:
        return restore.add(core, store, 5, {"jobspec": json.dumps(jobspec), "eventlog": eventlog})
    finally:
        store.spill.close()


def test_a_note_may_have_any_character(tmp_path: Path) -> None:
    cancel = {"type": "cancel", "severity": 0, "note": "line\u2028or paragraph\u2029"}
    job = restored(tmp_path, SPEC, log(SUBMIT, ("exception", cancel), ("clean", None)))
    assert job.state == INACTIVE
    assert job.events[1][2]["note"] == cancel["note"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"attributes": None}, "attributes"),
        ({"attributes": {"system": None}}, "attributes.system"),
        ({"resources": {}}, "resources"),
        ({"tasks": "true"}, "tasks"),
    ],
)
def test_a_jobspec_of_another_kind_is_refused_by_its_field(tmp_path: Path, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(restore.RestoreError, match=f"jobspec: {named}: missing, or not of the kind"):
        restored(tmp_path, {**SPEC, **wrong}, log(SUBMIT))


DEEP = '{"a":' * 900 + "1" + "}" * 900


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"jobspec": json.dumps({**SPEC, "attributes": {"user": "@"}}).replace('"@"', DEEP)}, "jobspec: is nested"),
        ({"eventlog": log(SUBMIT, ("memo", {"a": "@"})).replace('"@"', DEEP)}, "eventlog: is nested"),
        ({"eventlog": log(SUBMIT, ("memo", {"a": "@"})).replace('"@"', str(10**30))}, "more than 64 bits"),
        ({"eventlog": log(SUBMIT, ("alloc", None)), "R": f'{{"execution": {{"R_lite": [], "a": {DEEP}}}}}'}, "R: is"),
    ],
)
def test_what_the_journal_could_not_give_back_is_refused(tmp_path: Path, data: dict[str, str], told: str) -> None:
    core, store = Core(Queues([]), 7), Store(str(tmp_path))
    whole = {"jobspec": json.dumps(SPEC), "eventlog": log(SUBMIT), **data}
    with pytest.raises(restore.RestoreError, match=told):
        restore.add(core, store, 5, whole)
    with pytest.raises(restore.RestoreError, match="id: it has more than 63 bits"):
        restore.add(core, store, 1 << 63, whole)
    store.spill.close()
