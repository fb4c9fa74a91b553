"""The page of a job, on a real broker."""

from __future__ import annotations

from typing import Any

from html_pages import form_token, page, text_of
from waiting import until


def shown(client: Any, id: str) -> str:
    answer = client.get(f"/jobs/{id}")
    assert answer.status_code == 200, answer.text
    return text_of(answer.text)


def test_a_job_that_has_ended_shows_its_life_its_output_and_what_it_had(shared: Any, client: Any) -> None:
    script = "echo '<out>'; echo oops >&2; exit 3"
    id = shared.flux("submit", "--env=COLOR=green", "--time-limit=5m", "sh", "-c", script).strip()
    until(lambda: "✖ Failed" in shown(client, id))
    found = shown(client, id)
    for part in ("✖ Failed", "Exit 3", "submitted", "has its resources", "Time limit 5m", "sh -c", "COLOR green"):
        assert part in found, part
    html = client.get(f"/jobs/{id}").text
    assert '<span class="stdout">&lt;out&gt;\n</span>' in html and '<span class="stderr">oops\n</span>' in html
    assert "/cancel" not in html and "Why it waits" not in html
    whole = client.get(f"/jobs/{id}/output.txt")
    assert sorted(whole.text.split()) == ["<out>", "oops"] and "attachment" in whole.headers["content-disposition"]
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_job_that_waits_says_why(instance: Any, served: Any) -> None:
    client = served(instance)
    instance.flux("submit", "--exclusive", "-N1", "-t", "10m", "sleep", "1000")
    instance.flux("submit", "-N1", "true")
    id = instance.flux("submit", "-N1", "true").strip()
    until(lambda: "Jobs ahead 1" in shown(client, id), 20)
    found = shown(client, id)
    assert "Why it waits Reason insufficient resources" in found and "Resources" not in found
    assert "Nothing was written until now" in found


def test_a_running_job_is_cancelled_and_gets_signals(shared: Any, client: Any) -> None:
    first, second = (
        shared.flux(
            "submit", "sh", "-c", "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep .1; done"
        ).strip()
        for _ in range(2)
    )
    for id in (first, second):
        until(lambda id=id: "ready" in client.get(f"/jobs/{id}/output.txt").text)  # type: ignore[misc]
    given = {"csrf": form_token(client, f"/jobs/{first}")}
    assert client.post(f"/jobs/{first}/cancel").status_code == 403
    assert client.post(f"/jobs/{first}/cancel", data={"csrf": "x"}).status_code == 403
    assert client.post(f"/jobs/{first}/kill", data={**given, "signal": "SIGNONE"}).status_code == 400
    answer = client.post(f"/jobs/{first}/kill", data={**given, "signal": "SIGUSR1"})
    assert answer.status_code == 303 and "The signal was sent" in text_of(client.get(answer.headers["location"]).text)
    until(lambda: "✔ Completed" in shown(client, first))
    assert client.get(f"/jobs/{first}/output.txt").text.endswith("got\n")
    answer = client.post(f"/jobs/{second}/cancel", data=given)
    assert answer.status_code == 303 and "asked to end" in text_of(client.get(answer.headers["location"]).text)
    until(lambda: "⊘ Canceled" in shown(client, second))
    for path in ("cancel", "kill"):
        again = client.post(f"/jobs/{second}/{path}", data={**given, "signal": "SIGTERM"})
        assert "nothing was done" in text_of(client.get(again.headers["location"]).text)


def test_a_job_that_is_not_there_has_a_page(client: Any) -> None:
    for id in ("f1", "nosuch", "1"):
        for path in ("", "/output.txt"):
            page(client, f"/jobs/{id}{path}", 404)


def test_jobs_of_others_are_neither_copied_nor_cancelled(group: Any) -> None:
    ann, bob = group.client("ann.x", cookie=True), group.client("bob.x", cookie=True)
    given = {"command": "sleep 1000", "tasks": "1", "csrf": form_token(ann, "/submit")}
    answer = ann.post("/submit", data=given)
    assert answer.status_code == 303, text_of(answer.text)
    path = answer.headers["location"].partition("?")[0]
    id = path.rpartition("/")[2]
    assert ann.get(f"/submit?from={id}").status_code == 200 and ann.get(path).status_code == 200
    foreign, never = (bob.get(f"/submit?from={one}") for one in (id, "f1"))
    assert foreign.status_code == never.status_code == 404
    answer = bob.post("/jobs/cancel", data={"csrf": form_token(bob, "/submit"), "job": [id, "f1"], "confirmed": "yes"})
    assert answer.headers["location"].endswith("cancelled=0")
    for shared in ("/jobs", "/queue", "/machine"):
        assert id[1:] not in bob.get(shared).text, shared
    assert ann.post(f"{path}/cancel", data=given).status_code == 303


def test_colours_and_progress_bars_are_shown_as_a_terminal_does_and_the_file_stays_as_written(
    shared: Any, client: Any
) -> None:
    script = r"printf '\033[31m<b>red\033[0m\n10%%\r100%%\n'"
    id = shared.flux("submit", "--wait", "sh", "-c", script).strip()
    page = client.get(f"/jobs/{id}").text
    assert '<span class="red">&lt;b&gt;red</span>' in page and "100%" in page
    assert "\x1b" not in page and "10%\r" not in page
    assert client.get(f"/jobs/{id}/output.txt").content == b"\x1b[31m<b>red\x1b[0m\n10%\r100%\n"
