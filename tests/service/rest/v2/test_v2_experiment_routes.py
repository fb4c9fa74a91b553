"""Experiments in `/v2`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies import study


@pytest.fixture(scope="module")
def client(shared: Any, served: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    top: Path = tmp_path_factory.mktemp("experiments")
    (top / "group").mkdir()
    study(top)
    study(top / "group", name="50 % off?", ended=4)
    return served(shared, experiments=str(top))


def test_experiments_are_listed_with_their_progress(client: Any) -> None:
    found = client.get("/v2/experiments").json()
    second, first = found["experiments"]
    whole = {"folder": "study", "name": "study", "state": "complete", "planned": 21, "done": 21, "failed": 0}
    assert first == whole and found["problems"] == []
    assert (second["folder"], second["state"], second["done"]) == ("group/50 % off?", "interrupted", 4)


def test_an_experiment_has_its_cells_and_its_runs_in_pages(client: Any) -> None:
    found = client.get("/v2/experiments/study?limit=20").json()
    assert [cell["done"] for cell in found["cells"]] == [7, 7, 7] and found["failures"] == []
    assert len(found["runs"]) == found["next"] == 20 and found["runs"][0]["metrics"]["loop"] > 0
    last = client.get("/v2/experiments/study?start=20").json()
    assert [run["position"] for run in last["runs"]] == [20] and last["next"] is None
    assert client.get("/v2/experiments/group/50%20%25%20off%3F").json()["done"] == 4


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nothing", 404, "there is no experiment 'nothing'"),
        ("%2e%2e/%2e%2e/etc", 404, "there is no experiment '../../etc'"),
        ("study/runs", 404, "there is no experiment"),
        ("study?limit=0", 422, "limit must be a whole number from 1 to 10000"),
        ("study?x=1", 422, "x is not known here"),
    ],
)
def test_a_wrong_request_is_refused(client: Any, path: str, status: int, text: str) -> None:
    answer = client.get(f"/v2/experiments/{path}")
    assert answer.status_code == status and text in answer.json()["detail"]


def test_without_a_folder_of_experiments_there_are_none(shared: Any, served: Any) -> None:
    client = served(shared)
    for path in ("/v2/experiments", "/v2/experiments/study"):
        answer = client.get(path)
        assert answer.status_code == 404 and "headrace api start --experiments DIR" in answer.json()["detail"]
