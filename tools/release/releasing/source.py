"""What is released: a commit with its version, time and section of the changelog, and whether it may be released."""

from __future__ import annotations

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple


class ReleaseError(Exception):
    """A release that cannot be built or does not work; the message says what to do."""


class Source(NamedTuple):
    """A commit to release. `time` is that of the commit, in seconds since the epoch; `notes` is the changelog's text
    about this version.
    """

    commit: str
    version: str
    time: int
    notes: str


def read(root: Path, rehearse: bool = False) -> Source:
    """The source at HEAD of the repository `root`.

    Raises ReleaseError unless HEAD has the tag of its version, and the changelog a dated section for it. With
    `rehearse`, HEAD may be any commit.
    """
    commit = _git(root, "rev-parse", "HEAD").strip()
    version = version_in(_git(root, "show", f"{commit}:src/headrace/__init__.py"))
    title, notes = section(_git(root, "show", f"{commit}:CHANGELOG.md"), version)
    if not rehearse:
        if ".dev" in version:
            raise ReleaseError(
                f"src/headrace/__init__.py: {version} is a development version. Set the version to release, run "
                "`make install-files`, date its section of CHANGELOG.md, commit, and tag the commit"
            )
        if f"v{version}" not in _git(root, "tag", "--points-at", commit).split():
            raise ReleaseError(f"HEAD has no tag v{version}: `git tag v{version}`, or check out the tag")
        if not re.search(r"\(\d{4}-\d\d-\d\d\)$", title):
            raise ReleaseError(f'CHANGELOG.md: "{title}" has no date: write "## {version} (YYYY-MM-DD)"')
    return Source(commit, version, int(_git(root, "show", "-s", "--format=%ct", commit)), notes)


def version_in(text: str) -> str:
    """The version that the text of `headrace/__init__.py` declares. Raises ReleaseError."""
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ReleaseError("src/headrace/__init__.py has no line `__version__ = ...`")
    return found[1]


def section(changelog: str, version: str) -> tuple[str, str]:
    """(title, text) of the section about `version`; a development version has that of the release to come.

    Raises ReleaseError where there is none.
    """
    released = version.partition(".dev")[0]
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        if title.split(" ")[0] == released:
            return title.strip(), text.strip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section `## {released} (YYYY-MM-DD)`")


def export(root: Path, source: Source, into: Path) -> None:
    """Write the files of the commit below `into`; those of the work tree that are not committed stay out."""
    archive = subprocess.run(["git", "archive", source.commit], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(into, filter="data")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
