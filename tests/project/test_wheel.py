"""The wheel has all that it needs: it is built from a copy of the tree, installed into an empty environment, and used.

No network is asked: what it depends on is in .venv/wheels, where `make` has put it beside the tools.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from instance import clean_env
from page_blocks import ROOT

import headrace

WHEELS = Path(sys.prefix) / "wheels"


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, with nothing of this environment. Fails unless it succeeds."""
    env = {**clean_env(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(WHEELS)), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert WHEELS.is_dir(), f"{WHEELS} is missing: `make setup` makes it"
    tree = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src" / "headrace", tree / "src" / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tree / "out", ".", cwd=tree)
    (built,) = (tree / "out").iterdir()
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment that has the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("empty")
    # Debian's Python may come without ensurepip: the environment gets no pip, ours installs into it.
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    bin_folder = folder / "venv" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", bin_folder / "python")
    run(*pip, "install", "-q", wheel, cwd=folder)
    run(*pip, "check", cwd=folder)
    return bin_folder


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "headrace"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("headrace/")}
    # A README is for readers of the source.
    assert {name for name in files if "__pycache__" not in name and not name.endswith("/README.md")} == packed


def test_its_metadata_tell_version_licence_authors_and_versions_of_python(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        names = archive.namelist()
    assert metadata["Version"] == headrace.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert metadata["Author"] == "Headrace developers"
    assert metadata["Requires-Python"] == ">=3.10"
    assert "Programming Language :: Python :: 3.10" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_two_brokers_of_it_run_a_job_and_import_flux(commands: Path, tmp_path: Path) -> None:
    program = "import flux, headrace; print(headrace.__file__, flux.Flux().attr_get('size'))"
    script = f'flux run -N2 -l echo hello | sort; flux python -c "{program}"; flux version'
    lines = run(commands / "flux", "start", "--test-size=2", script, cwd=tmp_path).splitlines()
    assert lines[:2] == ["0: hello", "1: hello"]
    file, size = lines[2].split()
    assert file.startswith(str(commands.parent)) and size == "2"
    assert lines[3].split() == ["commands:", headrace.FLUX_VERSION]


def test_its_own_commands_have_their_files(commands: Path, tmp_path: Path) -> None:
    assert run(commands / "headrace-pod", "--version", cwd=tmp_path).split()[-1] == headrace.__version__
    example = ROOT / "examples" / "hello.yaml"
    run(commands / "headrace", "mini", "validate", example, cwd=tmp_path)
    graph = run(
        *(commands / "headrace", "resource-query", "-L", ROOT / "examples/graph/cluster.json", "-f", "jgf"),
        *("-t", "/dev/null"),
        cwd=tmp_path,
    )
    assert "ERROR" not in graph
    # The words of RFC 19 are a file of data.
    assert run(commands / "flux", "job", "id", "--to=words", "1", cwd=tmp_path).count("academy") >= 4
