"""The documentation builds without a warning, has its references, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from page_blocks import ROOT

from headrace.cli.main import COMMANDS

# Elements whose address a browser loads without being asked to.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Addresses(HTMLParser):
    """What a page loads: (element, address)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.found.append((tag, address))


def pages(site: Path) -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    for path in sorted(site.rglob("*.html")):
        parser = Addresses()
        parser.feed(path.read_text())
        yield path, parser.found


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    count = 0
    for path, addresses in pages(site):
        for tag, address in addresses:
            parts = urlsplit(address)
            assert not parts.scheme and not parts.netloc, f"{path.relative_to(site)}: {tag} {address}"
            # The page for unknown addresses names files from the root.
            base = site if address.startswith("/") else path.parent
            if not (tag == "link" and parts.path.endswith(".html")):
                assert (base / parts.path.lstrip("/")).is_file(), f"{path.relative_to(site)}: {tag} {address}"
            count += 1
    assert count > 500


def test_every_command_has_a_page_with_its_options(site: Path) -> None:
    folder = site / "reference" / "commands"
    assert {path.stem for path in folder.glob("*.html")} == {*COMMANDS, "index"}
    assert "--setattr" in (folder / "run.html").read_text()
    # A subcommand of argparse, one of the commands in C, and one of a subcommand.
    assert "--tail" in (folder / "job.html").read_text()
    assert "kvs put [OPTIONS] key=value" in (folder / "kvs.html").read_text()
    assert "kvs namespace create [OPTIONS] name" in (folder / "kvs.html").read_text()


def test_the_bindings_have_signatures_and_docstrings(site: Path) -> None:
    text = (site / "reference" / "flux" / "flux.kvs.html").read_text()
    assert "The value of" in text and "commit_async" in text
    assert "_program" not in (site / "reference" / "flux" / "index.html").read_text()


def test_the_search_knows_user_pages_commands_and_bindings(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]

    def places(word: str) -> set[str]:
        return {
            entry["location"].partition("#")[0]
            for entry in entries
            if word in f"{entry['title']} {entry['text']}".lower()
        }

    assert "user/scheduling.html" in places("backfilling")
    assert "reference/commands/submit.html" in places("--dependency")
    assert "reference/flux/flux.job.executor.html" in places("fluxexecutor")


def test_the_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    """A page of the file system can load scripts, no JSON, and starts no worker: seen to work with Chromium."""
    script = (site / "search" / "search_index.js").read_text()
    assert json.loads(script.removeprefix("var __index = ")) == json.loads(
        (site / "search/search_index.json").read_text()
    )
    for path, addresses in pages(site):
        scripts = [address.rpartition("/")[2] for tag, address in addresses if tag == "script"]
        assert scripts[0] == "worker-from-file.js" and scripts[1].startswith("bundle."), path
