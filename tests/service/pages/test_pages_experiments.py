"""The pages of experiments."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headrace.experiments.report.archive import complete
from html_pages import page, text_of
from studies import study, valued

NASTY = b"<script>alert(1)</script>\n\x1b[31mred\n"


@pytest.fixture(scope="module")
def client(shared: Any, served: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    top: Path = tmp_path_factory.mktemp("experiments")
    complete(str(study(top)))
    study(top, name="<b>half", outcome=valued({}), ended=5, errors={("lammps-1", 1): NASTY})
    return served(shared, experiments=str(top))


def test_experiments_are_listed_with_their_progress_and_reload(client: Any) -> None:
    found = page(client, "/experiments")
    rows = [[" ".join(cell.split()) for cell in row] for row in found.rows[1:]]
    assert rows == [
        ["<b>half", "◌ interrupted", "<b>half", "5 of 21 runs", "5"],
        ["study", "✔ complete", "study", "21 of 21 runs", "0"],
    ]
    links = [attrs.get("href") for tag, attrs in found.elements if tag == "a"]
    assert "/experiments/%3Cb%3Ehalf" in links and "/experiments" in links
    assert any(attrs.get("hx-get") == "/experiments" and attrs["id"] == "experiments" for _, attrs in found.elements)


def test_an_experiment_shows_cells_runs_and_failures_with_their_last_lines(client: Any) -> None:
    text = client.get("/experiments/%3Cb%3Ehalf").text
    assert "<script>alert" not in text and "<b>half" not in text and "\x1b" not in text
    shown = unescape(text_of(text))
    assert "Experiment <b>half" in shown and "◌ interrupted 5 of 21 runs 5 failed" in shown
    assert "lammps-1/1 failed: exit 3" in shown and "<script>alert(1)</script>" in shown and "red" in shown
    assert "lammps-4 1 of 7 runs" in shown and 'hx-get="/experiments/%3Cb%3Ehalf"' in text
    assert "report.html" not in text
    whole = client.get("/experiments/study").text
    assert "loop " in text_of(whole) and 'href="/experiments/study/report.html"' in whole


def test_a_report_is_shown_with_its_styles_but_without_access_to_the_service(client: Any) -> None:
    answer = client.get("/experiments/study/report.html")
    assert answer.status_code == 200 and "<h2>Scaling</h2>" in answer.text
    policy = answer.headers["content-security-policy"].split("; ")
    assert "sandbox" in policy and "default-src 'none'" in policy and "style-src 'unsafe-inline'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    missing = client.get("/experiments/%3Cb%3Ehalf/report.html")
    assert missing.status_code == 404 and "has no report yet" in missing.text


def test_without_a_folder_of_experiments_no_page_leads_to_them(shared: Any, served: Any) -> None:
    client = served(shared)
    assert 'href="/experiments"' not in client.get("/jobs").text
    answer = client.get("/experiments")
    assert answer.status_code == 404 and "headrace api start --experiments DIR" in answer.text


def test_only_administrators_have_the_link(group: Any) -> None:
    assert 'href="/experiments"' in group.client("boss.x", cookie=True).get("/jobs").text
    ann = group.client("ann.x", cookie=True)
    assert 'href="/experiments"' not in ann.get("/jobs").text
    answer = ann.get("/experiments")
    assert answer.status_code == 403 and "only administrators may see experiments" in answer.text
