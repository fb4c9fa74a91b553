"""`flux.job.validator`: results of several validators as one, and the job that they are given."""

from __future__ import annotations

import json
import sys

import pytest

from headrace.wire.client.installation import BINDINGS

sys.path.insert(0, BINDINGS)
from flux.job.validator import ValidatorJobInfo, ValidatorPlugin, ValidatorResult


def test_a_result_has_the_highest_number_and_each_text_once() -> None:
    result = ValidatorResult()
    result.push_result(0, None)
    assert (result.success, json.loads(str(result))) == (True, {"errnum": 0})
    for errnum, text in ((1, "one"), (22, "two"), (5, "one"), (0, None)):
        result.push_result(errnum, text)
    assert (result.success, json.loads(str(result))) == (False, {"errnum": 22, "errstr": "one, two"})


def test_a_job_has_its_keys_as_attributes() -> None:
    job = ValidatorJobInfo({"jobspec": {"version": 1}, "userid": 5, "flags": 0, "urgency": 16})
    assert (job.jobspec, job.userid, job.flags, job.urgency) == ({"version": 1}, 5, 0, 16)
    assert not hasattr(job, "nosuch")
    with pytest.raises(ValueError, match="flags, urgency"):
        ValidatorJobInfo({"jobspec": {}, "userid": 5})


def test_a_plugin_must_validate_and_opens_a_handle_of_its_own_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Validator(ValidatorPlugin):
        def validate(self, job: ValidatorJobInfo) -> None:
            assert job.flags == 0

    with pytest.raises(TypeError):
        ValidatorPlugin(parser=None)  # type: ignore[abstract]
    opened: list[object] = []
    monkeypatch.setattr("flux.Flux", lambda: opened.append(object()) or opened[-1])
    one, other = Validator(parser=None), Validator(parser=None)
    one.configure(args=None)  # type: ignore[arg-type]
    assert one.flux is one.flux is not other.flux
    assert len(opened) == 2
