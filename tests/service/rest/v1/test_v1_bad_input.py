"""No request makes the service fail: what is wrong with one is its sender's to know (4xx), never a traceback."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.service.rest.v1 import submission
from waiting import until

NAMES = [field.name for field in submission.FIELDS]
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([0, 1, -1, 1 << 31, 1 << 63, 10**30]))
TEXTS = st.one_of(st.text(), st.sampled_from(["\0", "\ud800", "true", "'", "a=b", "-oa=b", "a..b=1", "{'A': 1}", "ƒ"]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
DEEP = json.loads("[" * 900 + "]" * 900)


@settings(max_examples=200)
@given(fields=st.dictionaries(st.sampled_from(NAMES), ANYTHING), command=st.booleans())
def test_a_submission_of_any_form(client: Any, fields: Any, command: bool) -> None:
    if command:
        fields["command"] = "true"
    answer = client.post("/v1/jobs/submit", content=json.dumps(fields))
    assert answer.status_code in (200, 400, 422), answer.text
    assert answer.json()["Message"] and ("id" in answer.json()) == (answer.status_code == 200)


@pytest.mark.parametrize(
    "fields",
    [
        {"option_flags": {"a": DEEP}},
        {"option_flags": {"a": "\ud800"}},
        {"option_flags": {"a": float("nan")}},
        {"num_tasks": 10**18},
        {"gpus_per_task": 10**18},
        {"envars": "[" * 60000},
        {"envars": "-" * 60000 + "1"},
        {"is_launcher": True, "command": "/nosuch/snakemake", "workdir": "/nosuch"},
        {"is_launcher": True, "command": "/nosuch/snakemake", "envars": {"A": "\ud800"}},
    ],
    ids=range(9),
)
def test_what_no_job_can_be(client: Any, fields: Any) -> None:
    answer = client.post("/v1/jobs/submit", content=json.dumps({"command": "true", **fields}))
    assert answer.status_code == 400 and answer.json()["Errors"], answer.text


@settings(max_examples=100)
@given(query=st.dictionaries(st.sampled_from(["limit", "details", "start", "length", "draw", "search"]), TEXTS))
def test_a_query_of_any_form(client: Any, query: dict[str, str]) -> None:
    text = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in query.items())
    for path in ("/v1/jobs", "/v1/jobs/search"):
        assert client.get(f"{path}?{text}").status_code in (200, 422)


@settings(max_examples=100)
@given(values=st.dictionaries(st.sampled_from(["state", "user", "name", "queue", "page"]), TEXTS))
def test_filters_of_any_form(client: Any, values: dict[str, str]) -> None:
    text = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in values.items())
    assert client.get(f"/jobs?{text}").status_code in (200, 400)


KINDS = ["multipart/form-data", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
BODIES = [b"--x\r\n\r\n", b"a&" * 2000, b"command=%ff", b"--x--"]


@settings(max_examples=100)
@given(kind=st.sampled_from(KINDS), body=st.one_of(st.binary(), st.sampled_from(BODIES)))
def test_a_form_of_any_form(client: Any, kind: str, body: bytes) -> None:
    answer = client.post("/v1/jobs/submit", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (200, 400, 422), answer.text


def test_output_that_is_no_output_is_told(client: Any, shared: Any) -> None:
    id = client.post("/v1/jobs/submit", params={"command": "sleep 1000"}).json()["id"]
    until(lambda: client.get(f"/v1/jobs/{id}").json()["state"] == "RUN")
    key = shared.flux("job", "id", "--to=kvs", str(id)).strip() + ".guest.output"
    shared.flux("kvs", "eventlog", "append", key, "data", '{"stream": 1}')
    until(lambda: client.get(f"/v1/jobs/{id}/output").status_code == 502)
    assert "stream" in client.get(f"/v1/jobs/{id}/output").json()["Message"]
    client.post(f"/v1/jobs/{id}/cancel")
