"""What mkdocs adds to docs/: the references, the pages at the root of the repository, the examples, the menu.

The site's home is README.md of the repository. docs/README.md is the list of pages, from which the menu takes their
order; a page that it does not name comes last.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import bindings_reference
import command_reference
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages at the root of the repository, and where the site has them.
_FROM_ROOT = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "dev/contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}


def on_config(config: Any) -> Any:
    """The menu."""
    decisions = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "dev/decisions").glob("[0-9]*.md"))
    development = [path for path in _pages("dev") if not path.startswith("dev/decisions/")]
    config.nav = [
        {"Home": ["index.md", {"All pages": "pages.md"}]},
        {"User guide": _pages("user")},
        {"Reference": [{"Commands": "reference/commands/index.md"}, {"Python bindings": "reference/flux/index.md"}]},
        {"Development": [{"Contributing": "dev/contributing.md"}, *development]},
        {"Decisions": ["dev/decisions/README.md", *decisions]},
        {"Changelog": "changelog.md"},
        {"Security": "security.md"},
    ]
    return config


def _pages(folder: str) -> list[str]:
    """The pages of a folder of docs/, in the order of docs/README.md."""
    named = re.findall(rf"\(({folder}/[^)#]*\.md)\)", (DOCS / "README.md").read_text())
    there = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / folder).rglob("*.md"))
    return list(dict.fromkeys([*named, *there]))


def on_files(files: Files, config: Any) -> Files:
    """Add what is made, and what lies elsewhere in the repository."""
    for name, text in command_reference.pages():
        files.append(File.generated(config, f"reference/commands/{name}", content=text))
    for name, text in bindings_reference.pages():
        files.append(File.generated(config, f"reference/flux/{name}", content=text))
    files.remove(files.src_uris["README.md"])
    for name, place in _FROM_ROOT.items():
        files.append(File.generated(config, place, content=_linked_from(place, (ROOT / name).read_text())))
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_file() and path.suffix in (".yaml", ".json"):
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def _linked_from(place: str, text: str) -> str:
    """The text of a page at the root of the repository, its links as they are from `place` on the site."""
    up = "../" * place.count("/")
    for name, there in _FROM_ROOT.items():
        text = text.replace(f"]({name})", f"]({up}{there})")
    return text.replace("](docs/", f"]({up}")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The examples of the repository are part of the site."""
    return markdown.replace("](../../examples/", "](../examples/")


@event_priority(-100)
def on_post_build(config: Any) -> None:
    """Write the index of the search as a script, too: a page that was opened as a file can load no JSON."""
    folder = Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text(f"var __index = {(folder / 'search_index.json').read_text()}")
