"""`headrace fluxqueue history`: tables and JSON of what a store has."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest
from stored import life, opened

from headrace.cli.main import headrace
from headrace.fluxqueue.store.database import Address
from headrace.fluxqueue.store.writing import write


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
    for options, why in {"": "name it with --store", f"--statedir {tmp_path}/none": "is not there"}.items():
        assert headrace(["fluxqueue", "history", *options.split()]) == 1
        assert why in capsys.readouterr().err
    assert headrace(shlex.split("headrace fluxqueue history --store-password-file /secret/password")[1:]) == 1
    assert "give that, too" in capsys.readouterr().err
    assert headrace(["fluxqueue", "history", "--statedir", str(tmp_path), "--since", "soon"]) == 1
    assert "--since: invalid duration 'soon'" in capsys.readouterr().err
