"""The page that submits a job, on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from html_pages import Page, form_token, page, text_of
from waiting import until


def send(client: Any, **fields: str) -> Any:
    return client.post("/submit", data={"csrf": form_token(client, "/submit"), **fields})


def shown(client: Any, path: str) -> str:
    return text_of(client.get(path).text)


def test_a_command_is_submitted_and_its_page_is_shown(client: Any) -> None:
    assert "Free now: " in shown(client, "/submit")
    command = "sh -c 'echo \"$COLOR $(pwd)\"'"
    given = {"command": command, "name": "my job", "tasks": "1", "env": "COLOR=a b\r\n\r\nX=", "duration": "2h"}
    answer = send(client, **given, cwd="/tmp")
    assert answer.status_code == 303, answer.text
    to = answer.headers["location"]
    assert "The job was submitted." in shown(client, to) and "my job" in shown(client, to)
    until(lambda: "✔ Completed" in shown(client, to))
    found = shown(client, to)
    assert "a b /tmp" in found and "Time limit 2h" in found


def test_a_script_is_submitted_and_submitted_again(client: Any) -> None:
    answer = send(client, kind="script", script="#!/bin/sh\r\necho one\r\necho two\r\n", tasks="2", command="")
    to = answer.headers["location"].partition("?")[0]
    until(lambda: "✔ Completed" in shown(client, to))
    assert sorted(client.get(f"{to}/output.txt").text.split()) == ["one", "one", "two", "two"]
    again = page(client, f"/submit?from={to.rpartition('/')[2]}")
    fields = {attrs.get("name"): attrs.get("value") for tag, attrs in again.elements if tag == "input"}
    assert fields["tasks"] == "2" and fields["cores_per_task"] == "1" and fields["name"] == "script"
    assert "#!/bin/sh echo one echo two" in shown(client, f"/submit?from={to.rpartition('/')[2]}")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("command", "", "command is required"),
        ("command", "'", "command cannot be split into words"),
        ("tasks", "0", "from 1 to"),
        ("tasks", "9" * 30, "from 1 to"),
        ("nodes", "x", "from 1 to"),
        ("cores_per_task", "-1", "from 1 to"),
        ("gpus_per_task", "1.5", "from 0 to"),
        ("exclusive", "on", "exclusive needs the number of nodes"),
        ("duration", "soon", "duration must be a length of time"),
        ("cwd", "tmp", "must begin with /"),
        ("urgency", "40", "must be a number from 0 to 31"),
        ("dependencies", "afterok", "Invalid dependency URI"),
        ("env", "A=1\nB", "must have NAME=VALUE in each line"),
        ("nodes", "1000", "must be at most 1,"),
        ("cores_per_task", "60000", "cores on a node"),
        ("gpus_per_task", "60000", "GPUs on a node"),
    ],
)
def test_what_is_wrong_is_told_at_its_field(client: Any, field: str, value: str, sentence: str) -> None:
    given = {"command": "true", "tasks": "2000" if value == "1000" else "1", "action": "check", field: value}
    answer = send(client, **given)
    assert answer.status_code == 422 and sentence in text_of(answer.text), answer.text
    wrong = [attrs["name"] for _, attrs in Page(answer.text).elements if attrs.get("aria-invalid")]
    assert wrong == [field]


def test_a_check_submits_nothing(instance: Any, served: Any) -> None:
    client = served(instance)
    assert "Nothing was submitted yet" in text_of(send(client, command="true <b>", action="check").text)
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert client.post("/submit", data={"command": "true"}).status_code == 403


def test_urgency_and_dependencies_are_those_of_the_job(shared: Any, client: Any) -> None:
    first = shared.flux("submit", "--urgency=hold", "true").strip()
    answer = send(client, command="true", tasks="1", urgency="5", dependencies=f"afterany:{first}\r\n")
    id = answer.headers["location"].partition("?")[0].rpartition("/")[2]
    job = client.get(f"/v2/jobs/{id}").json()
    assert (job["urgency"], job["state"]) == (5, "DEPEND") and job["dependencies"][0].startswith("after-finish=")
    assert "waits for" in shown(client, f"/jobs/{id}")
    shared.flux("cancel", first, id)


def test_an_unknown_queue_is_told_at_its_field(client: Any) -> None:
    answer = send(client, command="true", tasks="1", queue="nosuch")
    assert answer.status_code == 422 and "queue is refused: " in text_of(answer.text)
    wrong = [attrs["name"] for _, attrs in Page(answer.text).elements if attrs.get("aria-invalid")]
    assert wrong == ["queue"]
    assert client.post("/v2/jobs", json={"command": "true", "queue": "nosuch"}).json()["field"] == "queue"
