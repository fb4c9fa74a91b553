"""CONTRIBUTING.md can be followed: its examples are carried out in a copy of the tree, then tested and run there.

The title of a block says where it goes: a path for a new file, `PATH, at the end` or `PATH, below: LINE` for lines
of one that exists. Blocks of `sh` are typed at the root of the copy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from instance import clean_env
from page_blocks import ROOT, Block, blocks

PAGE = blocks("CONTRIBUTING.md")
PLACED = [block for block in PAGE if block.title]
TYPED = [block for block in PAGE if block.language == "sh" and block.text != "make setup\n"]
COPIED = (
    "src/headrace",
    "tests/sched/graph",
    "tests/cli",
    "tests/engine/modules",
    "tests/system",
    "tests/formats/spec",
    "tests/service",
    "tests/cluster_queue",
    "tests/minicluster/api",
    "tools/contracts",
    "tools/fields",
    "examples/graph",
)


def put(block: Block, tree: Path) -> None:
    """Write a block where its title says. Fails where the line is not in the file exactly once."""
    path, _, place = block.title.partition(", ")
    file = tree / path
    if not place:
        assert not file.exists(), f"{path} is there already"
        file.write_text(block.text)
    elif place == "at the end":
        file.write_text(file.read_text() + block.text)
    else:
        line = place.removeprefix("below: ") + "\n"
        text = file.read_text()
        assert ("\n" + text).count("\n" + line) == 1, f"{path}: {line.strip()!r} is not there once"
        before, _, after = text.partition(line)
        file.write_text(before + line + block.text + after)


def python_files(tree: Path) -> list[Path]:
    placed = [block for block in PLACED if block.language == "python"]
    return [tree / name for name in dict.fromkeys(block.title.partition(", ")[0] for block in placed)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the examples need, with all of them carried out."""
    tree = tmp_path_factory.mktemp("contributing")
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "pyproject.toml", ROOT / ".importlinter", *ROOT.glob("tests/*.py")):
        shutil.copy(path, tree / path.relative_to(ROOT))
    for block in PLACED:
        put(block, tree)
    return tree


_MODULES = "import json, grimp; print(json.dumps(sorted(grimp.build_graph('headrace', cache_dir=None).modules)))"


def run(tree: Path, *command: str) -> str:
    """What a command prints, run in the copy with its code. Fails unless the command succeeds."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = clean_env(PYTHONPATH=f"{tree}/src:{tree}", PATH=path, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_are_formatted_and_linted(tree: Path) -> None:
    files = [str(path) for path in python_files(tree)]
    run(tree, "ruff", "check", "-q", *files)
    run(tree, "ruff", "format", "-q", "--check", *files)


def test_the_examples_keep_the_contracts(tree: Path) -> None:
    out = run(tree, "lint-imports", "--no-cache", "--verbose")
    assert "0 broken" in out
    # The copy was read, not this tree.
    modules = json.loads(run(tree, sys.executable, "-c", _MODULES))
    assert {"headrace.service.busy", "headrace.engine.modules.load_average"} <= {*modules}


# Existing tests that cover what the examples change.
COVERING = (
    "tests/formats/spec/test_stdlib_floor.py::test_a_file_needs_only_the_standard_library_and_the_house"
    "[cli/instance/load_average.py]",
    "tests/cluster_queue/test_cluster_queue_workloads.py",
    "tests/service/rest/v2/test_v2_openapi.py::test_the_kept_document_is_that_of_the_routes",
    "tests/service/rest/v2/test_v2_openapi.py::test_each_field_is_described",
    "tests/service/rest/v2/test_v2_openapi.py::test_an_operation_is_called_after_what_it_does_and_says_what_it_answers",
    "tests/service/rest/v2/test_v2_openapi.py::test_each_answer_is_as_its_schema_says",
)


def test_the_tests_of_the_examples_and_those_that_were_there_pass(tree: Path) -> None:
    run(tree, sys.executable, "-m", "headrace.service.rest.v2.openapi")
    files = (block.title.partition(", ") for block in PLACED)
    tests = [file for file, _, place in files if file.startswith("tests/") and not place]
    out = run(tree, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests, *COVERING)
    assert re.search(r"^(\d+) passed", out, re.MULTILINE), out


@pytest.mark.parametrize(
    ("block", "printed"),
    [
        (TYPED[0], r"\d+\.\d\d\n"),
        (TYPED[1], r'.*"nodelist": \["node\[0?,?2.*'),
    ],
    ids=["command", "policy"],
)
def test_what_is_typed_works(tree: Path, block: Block, printed: str) -> None:
    assert re.fullmatch(printed, run(tree, "sh", "-ec", block.text), re.DOTALL)


def test_a_field_of_a_minicluster_is_declared_in_one_file_and_used_in_another() -> None:
    titles = [block.title.partition(", ")[0] for block in PLACED]
    assert len([title for title in titles if title.startswith("src/headrace/minicluster/")]) == 2


def test_every_command_of_the_page_is_typed() -> None:
    assert len(TYPED) == 2
