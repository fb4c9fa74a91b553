"""`make release`: what may be released, and that version, install files, charts, lock and workflow agree.

The images and the trial of each file take minutes: `make release REHEARSE=1` runs them.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from page_blocks import ROOT
from releasing import archives, build, source
from releasing.source import ReleaseError

from headrace import __version__
from headrace.k8s.packaging.helm_templates import chart_version
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, DEFAULT_VIEW, REGISTRY, is_release

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHANGELOG = "# Changelog\n\n## 1.2.0 (2026-12-01)\n\n- New.\n\n### Part\n\n- More.\n\n## 1.1.0 (2026-01-01)\n\n- Old.\n"


class Repository:
    """A git repository with the files that a release looks at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *words: str) -> None:
        env = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        for who in ("AUTHOR", "COMMITTER"):
            env.update(
                {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org", f"GIT_{who}_DATE": "1700000000 +0"}
            )
        subprocess.run(["git", *words], cwd=self.root, env=env, check=True)

    def commit(self, version: str, changelog: str = CHANGELOG, tag: str = "") -> None:
        package = self.root / "src" / "headrace"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(f'"""Text."""\n\n__version__ = "{version}"\n')
        (self.root / "CHANGELOG.md").write_text(changelog)
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        if tag:
            self.git("tag", tag)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_tagged_commit_is_released_with_its_time_and_its_section(repository: Repository, tmp_path: Path) -> None:
    repository.commit("1.2.0", tag="v1.2.0")
    found = source.read(repository.root)
    assert (found.version, found.time, found.notes) == ("1.2.0", 1700000000, "- New.\n\n### Part\n\n- More.\n")
    (tmp_path / "uncommitted").touch()
    (tmp_path / "into").mkdir()
    source.export(repository.root, found, tmp_path / "into")
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == ["CHANGELOG.md", "src"]


@pytest.mark.parametrize(
    ("version", "changelog", "tag", "said"),
    [
        ("1.2.0.dev0", CHANGELOG, "v1.2.0.dev0", "1.2.0.dev0 is a development version"),
        ("1.2.0", CHANGELOG, "", "HEAD has no tag v1.2.0"),
        ("1.2.0", CHANGELOG, "v1.1.0", "HEAD has no tag v1.2.0"),
        ("1.2.0", CHANGELOG.replace("2026-12-01", "unreleased"), "v1.2.0", '"1.2.0 (unreleased)" has no date'),
        ("1.3.0", CHANGELOG, "v1.3.0", "no section `## 1.3.0 (YYYY-MM-DD)`"),
    ],
)
def test_what_is_not_ready_is_refused(
    repository: Repository, version: str, changelog: str, tag: str, said: str
) -> None:
    repository.commit(version, changelog, tag)
    with pytest.raises(ReleaseError, match=re.escape(said)):
        source.read(repository.root)


def test_a_rehearsal_takes_a_development_version_with_the_section_of_its_release(repository: Repository) -> None:
    repository.commit("1.2.0.dev3")
    found = source.read(repository.root, rehearse=True)
    assert (found.version, found.notes[:7]) == ("1.2.0.dev3", "- New.\n")


def test_archives_depend_on_files_and_time_alone(tmp_path: Path) -> None:
    made = []
    for number, names in enumerate((("b", "a/c"), ("a/c", "b"))):
        folder = tmp_path / str(number)
        (folder / "a").mkdir(parents=True)
        for name in names:
            (folder / name).write_text(name)
        (folder / "b").chmod(0o755)
        os.utime(folder / "b", (number, number))
        made.append(archives.packed(folder, "chart", 1700000000))
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0])) as archive:
        members = [(one.name, one.mode, one.mtime, one.uid, one.uname) for one in archive]
    assert members == [("chart/a/c", 0o644, 1700000000, 0, ""), ("chart/b", 0o755, 1700000000, 0, "")]
    (tmp_path / "sdist.tar.gz").write_bytes(made[0])
    (tmp_path / "again").mkdir()
    assert archives.repacked(tmp_path / "sdist.tar.gz", tmp_path / "again", 1700000000) == made[0]


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / build.CHECKSUMS).write_text("old")
    assert build.checksums(tmp_path) == f"{hashlib.sha256(b'x').hexdigest()}  file\n"


@pytest.mark.parametrize(
    ("version", "chart"),
    [("1.2.0", "1.2.0"), ("1.2.0.dev3", "1.2.0-dev.3"), ("1.2.0rc1", "1.2.0-rc.1"), ("10.20.30b2", "10.20.30-b.2")],
)
def test_charts_have_the_version_in_the_form_of_semver(version: str, chart: str) -> None:
    assert chart_version(version) == chart


def test_only_development_versions_are_not_published() -> None:
    assert is_release("1.2.0") and is_release("1.2.0rc1")
    assert not is_release("1.2.0.dev3")


def test_the_version_stands_in_one_place_and_install_files_and_charts_have_it() -> None:
    for chart in build.CHARTS:
        declared = yaml.safe_load((ROOT / "deploy" / "helm" / chart / "Chart.yaml").read_text())
        assert (declared["version"], declared["appVersion"]) == (chart_version(__version__), __version__)
        values = yaml.safe_load((ROOT / "deploy" / "helm" / chart / "values.yaml").read_text())
        assert values["image"] == DEFAULT_OPERATOR == f"{REGISTRY}/headrace-operator:{__version__}"
        assert DEFAULT_OPERATOR in (ROOT / "deploy" / f"{chart}.yaml").read_text()
    assert DEFAULT_VIEW in (ROOT / "deploy" / "headrace-operator.yaml").read_text()
    listed = subprocess.run(["git", "grep", "-lF", __version__], cwd=ROOT, capture_output=True, text=True, check=True)
    declaring = [path for path in listed.stdout.split() if not path.startswith("deploy/")]
    assert declaring == ["src/headrace/__init__.py"]


def test_every_dependency_of_the_images_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_images = [one for extra in ("kube", "fluxqueue", "postgresql") for one in extras[extra]]
    wanted = [*project["dependencies"], *of_images]
    names = {re.split(r"[\[>=<; ]", one)[0].lower() for one in wanted} - {"headrace", "tomli"}
    text = (ROOT / "tools/release/contents.txt").read_text()
    assert names <= set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    for lock in ("contents.txt", "tools.txt"):
        text = (ROOT / "tools/release" / lock).read_text()
        pinned = re.findall(r"^[a-z0-9-]+==.*\\\n +--hash=sha256:", text, re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^[a-z0-9-]+", text, re.MULTILINE)) > 10


def test_the_workflow_builds_with_make_and_publishes_what_was_built() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    # YAML 1.1 reads the key `on` as true.
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    jobs = workflow["jobs"]
    assert [step["run"] for step in jobs["build"]["steps"] if step.get("run", "").startswith("make")] == [
        "make release",
        "make docs",
    ]
    assert set(jobs) == {"build", "pypi", "registry", "site", "page"}
    assert all("build" in jobs[job]["needs"] for job in ("pypi", "registry", "site"))
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert f"ghcr.io/{REGISTRY.partition('/')[2]}" == REGISTRY
