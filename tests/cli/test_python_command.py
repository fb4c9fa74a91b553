"""`flux python --list-versions`."""

from __future__ import annotations

from pathlib import Path

from headrace.cli import installation


def test_versions_are_executables_of_that_name_in_the_execution_path(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    for path, mode in (
        ("one/flux-python3.11", 0o755),
        ("one/flux-python3.9", 0o644),
        ("one/flux-python-tool", 0o755),
        ("one/python3.8", 0o755),
        ("two/flux-python3.11", 0o755),
        ("two/flux-python3.13", 0o755),
    ):
        (tmp_path / path).write_text("")
        (tmp_path / path).chmod(mode)
    assert installation.versions(f"{tmp_path}/one::{tmp_path}/none:{tmp_path}/two") == ["python3.11", "python3.13"]
    assert installation.versions("") == []
