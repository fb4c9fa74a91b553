"""What holds for the tests as a whole."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
# Pauses of a fixed length, each with its reason. To wait for something, or to see that it stays away: waiting.py.
PAUSES = {
    ("service/test_http_connection.py", "application"): "an answer that takes longer than a request may take to come",
    (
        "engine/broker/test_local.py",
        "turns",
    ): "lets bytes pass between two sockets of one process; nothing tells when they have",
    ("engine/broker/test_local.py", "send"): "stands for the work of a slow service",
    ("engine/broker/test_router.py", "send"): "stands for the work of a slow service",
    ("engine/broker/test_router.py", "more"): "stands for the work of a busy owner",
    (
        "engine/modules/job_manager/test_job_manager_disk_faults.py",
        "first",
    ): "gives a wrong answer the time to be given before the crash",
    ("engine/shell/test_tmpdir.py", "test_the_next_job_finds_nothing_in_a_folder_that_was_handed_on"): (
        "the time since the last change is what an untouched folder is told by"
    ),
    ("system/terminal.py", "_read"): "its callers look again: a terminal that nobody has open is always readable",
    ("system/test_faults_network.py", "test_a_short_interruption_costs_nothing"): "the length of the interruption",
}


def test_no_two_files_of_tests_have_the_same_name() -> None:
    """A name in a report, or given to `pytest -k`, means one file."""
    names = Counter(path.name for path in HERE.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


# Folders of tests that are for no folder of the source.
FOR_THE_WHOLE = ("kube", "project", "system")


def test_a_folder_of_tests_is_named_as_the_source_that_it_tests() -> None:
    source = HERE.parent / "src/headrace"
    folders = {path.parent.relative_to(HERE) for path in HERE.rglob("test_*.py")} - {Path()}
    mirrored = [folder for folder in folders if folder.parts[0] not in FOR_THE_WHOLE]
    assert [folder.as_posix() for folder in mirrored if not (source / folder).is_dir()] == []


def pauses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(function, line) of each `sleep` but for turns of the loop (0 s), look-and-waits, and random moments.

    A look-and-wait is a pause in a loop that ends by what it sees: a `while` with a condition or a way out, a `for`
    with a way out.
    """

    def walk(node: ast.AST, function: str, looking: bool) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            inside, name = looking, function
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                inside, name = False, getattr(child, "name", function)
            elif isinstance(child, (ast.While, ast.For, ast.AsyncFor)):
                ways_out = any(isinstance(one, (ast.Break, ast.Return, ast.Raise)) for one in ast.walk(child))
                inside = ways_out or (isinstance(child, ast.While) and not isinstance(child.test, ast.Constant))
            call = child.value if isinstance(child, (ast.Await, ast.Expr)) else None
            if isinstance(call, ast.Call) and not looking and _is_pause(call):
                yield name, call.lineno
            yield from walk(child, name, inside)

    return walk(tree, "", False)


def _is_pause(call: ast.Call) -> bool:
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if named != "sleep" or not call.args:
        return False
    length = ast.unparse(call.args[0])
    return not (length == "0" or any(word in length for word in ("random", "dice", "moment")))


def test_no_test_pauses_for_a_fixed_time() -> None:
    """A pause is too short on a busy machine and too long on all others: wait for what is awaited, bounded."""
    found = set()
    for path in HERE.rglob("*.py"):
        for function, line in pauses(ast.parse(path.read_text())):
            place = (path.relative_to(HERE).as_posix(), function)
            assert place in PAUSES, f"{place[0]}:{line}: {function} pauses for a fixed time: see tests/waiting.py"
            found.add(place)
    assert found == PAUSES.keys()


def test_pauses_are_told_from_other_sleeps() -> None:
    text = """
def fixed():
    time.sleep(1)
    for _ in range(3):
        time.sleep(.1)
    while True:
        time.sleep(1)
async def waits():
    await asyncio.sleep(0)
    while not done():
        await asyncio.sleep(.01)
    for _ in range(100):
        if done():
            return
        await asyncio.sleep(.01)
    time.sleep(dice.random() / 5)
    task = spawn(asyncio.sleep(1000))
"""
    assert list(pauses(ast.parse(text))) == [("fixed", 3), ("fixed", 5), ("fixed", 7)]
