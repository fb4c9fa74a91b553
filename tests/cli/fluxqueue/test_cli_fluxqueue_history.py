"""`headrace fluxqueue history`: tables and JSON of what a store has, and of what a queue answers."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from stored import life, opened

from headrace.cli.fluxqueue import cluster
from headrace.cli.main import headrace
from headrace.cluster_queue import history_requests
from headrace.cluster_queue.history_requests import Answer, NotAnswered
from headrace.cluster_queue.store.database import Address
from headrace.cluster_queue.store.history import Line, Waits
from headrace.cluster_queue.store.writing import write


def test_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = Address(f"sqlite:{tmp_path}/store.sqlite")
    now = time.time()
    with opened(address) as database:
        for name, width, waited in (("a", 1, 10), ("b", 1, 30), ("c", 4, 200)):
            start = now - 7200
            write(database, life(name, start, now - 3600, width=width, namespace=name, queued_at=start - waited))

    def told(line: str) -> str:
        assert headrace(shlex.split(line)[1:]) == 0
        return capsys.readouterr().out

    rows = [row.split() for row in told(f"headrace fluxqueue history --statedir {tmp_path} --by width").splitlines()]
    assert rows[0] == ["WIDTH", "JOBS", "STARTED", "MEAN", "P50", "P95", "MAX", "POD-HOURS"]
    assert rows[1] == ["1", "2", "2", "20s", "10s", "30s", "30s", "4.00"]
    assert rows[2] == ["2-4", "1", "1", "3.333m", "3.333m", "3.333m", "3.333m", "2.00"]
    lines = told(f"headrace fluxqueue history --statedir {tmp_path} --since 30m").splitlines()
    assert lines[1].split() == ["all", "0", "0", "-", "-", "-", "-", "0.00"]
    line = f"headrace fluxqueue history --store {address.url} --since infinity --by namespace --json"
    found = json.loads(told(line))
    assert (found["since"], found["by"]) == (0, "namespace")
    assert [row["namespace"] for row in found["rows"]] == ["a", "b", "c"]
    assert found["rows"][0]["states"] == {"Finished": 1}
    for options, why in {
        f"--statedir {tmp_path}/none": "does not exist",
        f"--statedir {tmp_path} --context there": "use either a store",
    }.items():
        assert headrace(["fluxqueue", "history", *options.split()]) == 1
        assert why in capsys.readouterr().err
    assert headrace(shlex.split("headrace fluxqueue history --store-password-file /secret/password")[1:]) == 1
    assert "--store-password-file needs --store" in capsys.readouterr().err
    assert headrace(["fluxqueue", "history", "--statedir", str(tmp_path), "--since", "soon"]) == 1
    assert "--since: invalid duration 'soon'" in capsys.readouterr().err


def test_without_a_store_the_queue_of_the_cluster_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []
    line = Line(name="team", jobs=3, started=0, states={"Held": 3}, waits=Waits(), pod_hours=1.5)
    answers: list[Answer | NotAnswered] = [
        *(Answer(since=0, until=9, rows=[line], unread=2, omitted=1) for _ in range(2)),
        NotAnswered("the queue records no history"),
    ]

    def connected(options: Namespace, act: Any) -> int:
        return int(asyncio.run(act((options.kubeconfig, options.context), options.namespace or "mine")))

    async def ask(*words: object) -> Answer:
        asked.append(words)
        answer = answers.pop(0)
        if isinstance(answer, NotAnswered):
            raise answer
        return answer

    monkeypatch.setattr(cluster, "connected", connected)
    monkeypatch.setattr(history_requests, "ask", ask)
    assert headrace(["fluxqueue", "history", "--by", "namespace", "--since", "1h"]) == 0
    said = capsys.readouterr()
    assert [row.split() for row in said.out.splitlines()][1] == ["team", "3", "0", "-", "-", "-", "-", "1.50"]
    assert said.err.splitlines() == [
        "1 more line does not fit in the answer",
        "2 jobs that you may not read: not in these numbers",
    ]
    line_of = "headrace fluxqueue history --json --namespace n --kubeconfig file --context there"
    assert headrace(shlex.split(line_of)[1:]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["unread"], found["omitted"], found["rows"][0]["pod_hours"]) == (2, 1, 1.5)
    assert headrace(["fluxqueue", "history"]) == 1
    assert capsys.readouterr().err == "headrace-fluxqueue: the queue records no history\n"
    assert asked == [
        (("", ""), "mine", "1h", "namespace"),
        (("file", "there"), "n", "7d", ""),
        (("", ""), "mine", "7d", ""),
    ]
