"""The files that a repository has beside its code say what holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from page_blocks import ROOT

BIN = Path(sys.executable).parent
MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def test_make_help_names_every_target() -> None:
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    out = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"^make ([a-z-]+) +\S", out, re.MULTILINE)
    assert sorted(named) == sorted(phony[1].replace("\\\n", "").split())


def test_the_workflow_runs_what_ci_runs_on_each_version_of_the_metadata() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert job["strategy"]["matrix"]["python"] == versions
    assert f'requires-python = ">={versions[0]}"' in PYPROJECT


def test_extras_are_shown_as_they_are_installed_from_a_copy_of_the_repository() -> None:
    """Headrace is on no registry. The first page for users has the extras that they need."""
    of_users = {"api", "experiments", "fluxqueue", "kube", "kubeflow", "pam", "postgresql"}
    known = of_users | {"uvloop", "images", "docs", "test"}
    folders = (ROOT / name for name in ("src", "docs", "examples", "bench", "deploy", "tools"))
    found = [one for folder in folders for one in folder.rglob("*") if one.is_file() and one.suffix != ".pyc"]
    files = [ROOT / "README.md", *found]
    shown = set()
    for path in files:
        text = path.read_text(errors="replace")
        assert not re.search(r"pip install\b[^`\n]*\bheadrace\b(?!-)", text), path
        for names in re.findall(r"pip install [^`\n]*?'\.\[([a-z,]+)\]'", text):
            shown |= set(names.split(","))
    assert of_users <= shown <= known
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/user/first-steps.md").read_text(), re.MULTILINE)
    assert set(table) == of_users


def test_the_workflow_builds_kubernetes_once_and_each_version_of_python_takes_that() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    assert jobs["test"]["needs"] == "kubernetes"
    assert [step["run"] for step in jobs["kubernetes"]["steps"] if "run" in step] == ["make kube-tools"]
    caches = [step["with"] for job in jobs.values() for step in job["steps"] if "cache" in step.get("uses", "")]
    kept = [(cache["path"], cache["key"]) for cache in caches]
    assert len(kept) == 2 and kept[0] == kept[1]
    assert caches[1]["fail-on-cache-miss"]


def committed(folder: Path, env: dict[str, str], text: str) -> subprocess.CompletedProcess[str]:
    (folder / "file.py").write_text(text)
    subprocess.run(["git", "add", "."], cwd=folder, env=env, check=True)
    command = ["git", "commit", "-q", "-m", "change"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", ["import os\n", "x = { 1:2 }\n"], ids=["lint", "format"])
def test_the_hooks_refuse_a_commit_that_ci_would_refuse(text: str, tmp_path: Path) -> None:
    """mypy is left out: it looks at the whole package, which `make check` does as well."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env.update(PRE_COMMIT_HOME=str(tmp_path / "cache"), SKIP="mypy", HOME=str(tmp_path))
    for word in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{word}_NAME": "a", f"GIT_{word}_EMAIL": "a@example.org"})
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, env=env, check=True)
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / ".gitignore").write_text(".venv\n")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    installed = subprocess.run([BIN / "pre-commit", "install"], cwd=folder, env=env, capture_output=True, check=False)
    assert installed.returncode == 0, installed.stdout
    good = committed(folder, env, "X = {1: 2}\n")
    assert good.returncode == 0, good.stdout + good.stderr
    bad = committed(folder, env, text)
    assert bad.returncode == 1
    assert "file.py" in bad.stdout + bad.stderr
