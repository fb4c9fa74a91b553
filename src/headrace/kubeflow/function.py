"""Turns a training function into the text of a Python program. Pure.

The text is all that the function's processes receive.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def program_text(func: Callable[..., Any], args: Mapping[str, Any] | None) -> str:
    """A program that calls `func` with the keyword arguments `args`.

    Raises ValueError for a function or arguments that source text cannot represent.
    """
    _check_function(func)
    given = {} if args is None else args
    _check_arguments(func, given)
    try:
        source = inspect.getsource(func)
    except (OSError, TypeError) as exc:
        raise ValueError(f"func: the source of {_name(func)} cannot be found ({exc}): define it in a file") from None
    if source[:1].isspace():
        # A nested function. Its lines keep their indentation, because a text of several lines within it may be indented
        # less.
        source = f"if True:\n{source}"
    if func.__code__.co_flags & __future__.annotations.compiler_flag:
        source = f"from __future__ import annotations\n\n{source}"
    call = f"{func.__name__}(**{dict(given)!r})" if given else f"{func.__name__}()"
    # Processes that the function starts may import the program, and must not train again.
    text = f'{source}\n\nif __name__ == "__main__":\n    {call}\n'
    try:
        compile(text, "<func>", "exec")
    except SyntaxError as exc:
        raise ValueError(f"func: the source of {_name(func)} is not a complete program: {exc}") from None
    return text


def _check_function(func: Callable[..., Any]) -> None:
    if not inspect.isfunction(func):
        raise ValueError(
            f"func: must be a function that is defined with def, not {_name(func)} ({type(func).__name__})"
        )
    if func.__name__ == "<lambda>":
        raise ValueError("func: must be a function that is defined with def, not a lambda")
    if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ValueError(f"func: a call of {_name(func)} runs nothing of it, as it is a coroutine or a generator")
    outer = [name for name in inspect.unwrap(func).__code__.co_freevars if name != func.__name__]
    if outer:
        names = ", ".join(outer)
        raise ValueError(
            f"func: {_name(func)} uses {names} of the function around it: give func_args, or define it inside"
        )


def _check_arguments(func: Callable[..., Any], args: Any) -> None:
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise ValueError("func_args: must be a dict of arguments by name")
    for name, value in args.items():
        try:
            known = ast.literal_eval(repr(value))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            known = None
        if type(known) is not type(value) or known != value:
            kind = type(value).__name__
            rule = "must be made of finite numbers, texts, lists, tuples, sets, dicts, booleans and None"
            raise ValueError(f"func_args: {name} is a {kind}: it {rule}, as it is passed on as text")
    if hasattr(func, "__wrapped__"):
        # A decorator may add arguments.
        return
    try:
        inspect.signature(func).bind(**args)
    except TypeError as exc:
        raise ValueError(f"func_args: {_name(func)} cannot be called with them: {exc}") from None


def _name(func: Any) -> str:
    return getattr(func, "__qualname__", None) or repr(func)
