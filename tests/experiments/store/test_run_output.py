"""The last lines of a run's output, and the files that are never read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.experiments.store.folder import Folder
from headrace.experiments.store.output import last_lines, open_regular
from studies import study


def test_the_last_lines_of_an_output_are_those_of_stderr_then_of_stdout(tmp_path: Path) -> None:
    path = study(tmp_path, errors={("lammps-1", 1): b"".join(b"line %d\r\n" % n for n in range(5000))})
    folder = Folder(path)
    first, second, *_ = folder.results(folder.load()[1])
    assert last_lines(folder, first, 3) == ["line 4997", "line 4998", "line 4999"]
    assert last_lines(folder, second) == ["Loop time of 1.5"]
    (path / "runs/lammps-1/1/stderr").write_bytes(b"z" * 20_000)
    assert last_lines(folder, first) == ["z" * 300 + "…"]


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    path = study(tmp_path, ended=1)
    folder = Folder(path)
    (result,) = folder.results(folder.load()[1])
    run = path / "runs" / result.cell / "1"
    (tmp_path / "secret").write_text("secret")
    for name in ("stdout", "stderr"):
        (run / name).unlink()
    (run / "stdout").symlink_to(tmp_path / "secret")
    os.mkfifo(run / "stderr")
    assert last_lines(folder, result) == []
    for name in ("stdout", "stderr"):
        with pytest.raises(OSError):
            open_regular(run / name)
