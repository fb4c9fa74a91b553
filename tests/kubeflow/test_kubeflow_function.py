"""Training functions as text: what runs as it did where it was written, and what is refused before anything starts."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.kubeflow.function import program_text


def plain(word: str = "x", *, numbers: tuple[int, ...] = ()) -> None:
    print(word, sum(numbers))


def traced(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def inner(*args: Any, **others: Any) -> Any:
        return func(*args, **others)

    return inner


def run(text: str, tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(text)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        (None, "x 0\n"),
        ({}, "x 0\n"),
        ({"word": 'it\'s "so" {{id}} \\n ü\nand'}, 'it\'s "so" {{id}} \\n ü\nand 0\n'),
        ({"word": "a", "numbers": (1, -2, 4)}, "a 3\n"),
    ],
)
def test_a_function_is_called_with_its_arguments(args: dict[str, Any] | None, printed: str, tmp_path: Path) -> None:
    assert run(program_text(plain, args), tmp_path) == printed


def test_a_function_within_another_keeps_its_texts(tmp_path: Path) -> None:
    def inner(depth: int = 2) -> None:
        text = """a
  b"""
        print(repr(text), depth)
        if depth:
            inner(depth - 1)

    assert run(program_text(inner, {"depth": 1}), tmp_path) == "'a\\n  b' 1\n'a\\n  b' 0\n"


def test_processes_that_import_the_program_do_not_train_once_more(tmp_path: Path) -> None:
    def spawns() -> None:
        import multiprocessing

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(abs, [-1]))

    assert run(program_text(spawns, None), tmp_path) == "[1]\n"


def test_annotations_are_read_as_where_the_function_was_written(tmp_path: Path) -> None:
    def annotated(path: Path | None = None) -> NotThere:  # type: ignore[name-defined] # noqa: F821
        print("ran")

    assert run(program_text(annotated, None), tmp_path) == "ran\n"


WORD = ["outer"]


def uses_outer() -> Callable[[], None]:
    word, other = WORD

    def inner() -> None:
        print(word, other)

    return inner


async def coroutine() -> None:
    pass


def generator() -> Any:
    yield 1


class Callable_:
    def __call__(self) -> None:
        pass

    def method(self) -> None:
        pass


def without_source() -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec("def made(): pass", scope)
    made: Callable[..., Any] = scope["made"]
    return made


def closure() -> Callable[..., Any]:
    WORD.append("more")
    try:
        return uses_outer()
    finally:
        WORD.pop()


@pytest.mark.parametrize(
    ("func", "rule"),
    [
        (lambda: None, "not a lambda"),
        (print, "not print"),
        (Callable_(), "defined with def"),
        (Callable_().method, "defined with def"),
        (functools.partial(plain, "x"), "defined with def"),
        (None, "defined with def"),
        ("train.py", "defined with def"),
        (coroutine, "a coroutine or a generator"),
        (generator, "a coroutine or a generator"),
        (without_source(), "the source of made cannot be found"),
        (closure(), "inner uses other, word of the function around it"),
    ],
    ids=[
        *("lambda", "builtin", "callable", "method", "partial", "None", "text", "coroutine", "generator"),
        *("without source", "closure"),
    ],
)
def test_what_is_no_function_by_itself_is_refused(func: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=r"^func: ") as caught:
        program_text(func, None)
    assert rule in str(caught.value)


class Text(str):
    pass


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        ({"word": object()}, "word is a object"),
        ({"word": Path("x")}, "word is a"),
        ({"word": [float("nan")]}, "word is a list"),
        ({"word": float("inf")}, "finite numbers"),
        ({"word": Text("x")}, "word is a Text"),
        ({"word": plain}, "word is a function"),
        ({1: 2}, "must be a dict of arguments by name"),
        (["x"], "must be a dict of arguments by name"),
        ({"unknown": 1}, "cannot be called with them: got an unexpected keyword argument 'unknown'"),
    ],
    ids=["object", "path", "nan", "infinity", "subclass", "function", "number as name", "list", "unknown"],
)
def test_arguments_that_text_cannot_hold_are_refused(args: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=r"^func_args: ") as caught:
        program_text(plain, args)
    assert rule in str(caught.value)


def test_what_a_decorator_adds_to_the_arguments_is_left_to_it() -> None:
    assert program_text(traced(plain), {"added": 1}).endswith("plain(**{'added': 1})\n")
