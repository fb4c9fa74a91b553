"""The environment that brings a job's packages: made once, seen by all, with what this Python has."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from headrace.kubeflow import with_packages

TINY = "headrace_tiny"
SHOW = f"import {TINY}, msgspec, sys; print({TINY}.VALUE, sys.prefix)"


def tiny_wheel(folder: Path, name: str = TINY, value: int = 42) -> str:
    """A package as a wheel, so that nothing is asked of a registry."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", f"VALUE = {value}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return str(path)


def start(tmp_path: Path, packages: str) -> subprocess.Popen[str]:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{packages}\n")
    command = [sys.executable, with_packages.__file__, str(tmp_path / "env"), str(requirements), "-c", SHOW]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_share_the_environment_that_one_makes(tmp_path: Path) -> None:
    wheel = tiny_wheel(tmp_path)
    running = [start(tmp_path, wheel) for _ in range(3)]
    done = [(*process.communicate(), process.returncode) for process in running]
    assert [code for _, _, code in done] == [0, 0, 0], done
    assert {out for out, _, _ in done} == {f"42 {tmp_path / 'env'}\n"}
    assert sorted(err for _, err, _ in done) == ["", "", f"installing packages: {wheel}\n"]


def test_packages_that_cannot_be_installed_fail_all(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.whl")
    running = [start(tmp_path, missing) for _ in range(2)]
    done = [(*process.communicate(), process.returncode) for process in running]
    assert [code for _, _, code in done] == [1, 1]
    assert sum(f"pip could not install the packages: {missing}" in err for _, err, _ in done) == 1


def test_programs_of_the_environment_come_first(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(tiny_wheel(tmp_path))
    show = "import os, shutil; print(shutil.which('python'), os.environ['VIRTUAL_ENV'])"
    command = [sys.executable, with_packages.__file__, str(tmp_path / "env"), str(tmp_path / "requirements.txt"), "-c"]
    out = subprocess.run([*command, show], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert out.split() == [str(tmp_path / "env/bin/python"), str(tmp_path / "env")]
