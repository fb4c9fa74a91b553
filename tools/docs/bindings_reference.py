"""The reference of the Python bindings: a page for each public module of `flux`, from its signatures and docstrings.

The files are read, not imported: what a page says does not depend on the Python that builds it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent / "wire" / "compat" / "python"
_HEAD = (
    "# Python bindings\n\nWhat `import flux` gives, from docstrings. The names are those of Flux's own bindings.\n\n"
)


def pages() -> Iterator[tuple[str, str]]:
    """(name of the file, Markdown) of the list of modules, and of each public module."""
    modules = {name: ast.parse(path.read_text()) for name, path in sorted(_files())}
    rows = "".join(f"| [`{name}`]({name}.md) | {_summary(tree)} |\n" for name, tree in modules.items())
    yield "index.md", f"{_HEAD}| module | |\n|---|---|\n{rows}"
    for name, tree in modules.items():
        yield f"{name}.md", "\n".join([f"# {name}\n", _doc(tree), *_taken_over(tree, modules), *_defined(tree, "##")])


def _files() -> Iterator[tuple[str, Path]]:
    for path in SOURCE.rglob("*.py"):
        words = path.relative_to(SOURCE).with_suffix("").parts
        words = words[:-1] if words[-1] == "__init__" else words
        if not any(word.startswith("_") for word in words):
            yield ".".join(words), path


def _doc(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return (ast.get_docstring(node) or "") + "\n"


def _summary(tree: ast.Module) -> str:
    return " ".join(_doc(tree).split("\n\n")[0].split()).replace("|", r"\|")


def _taken_over(tree: ast.Module, modules: dict[str, ast.Module]) -> Iterator[str]:
    """The public names that a module has from others of the bindings."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names = [alias.asname or alias.name for alias in node.names if _is_listed(alias, tree)]
            if names:
                yield f"From [`{node.module}`]({node.module}.md): {', '.join(f'`{name}`' for name in names)}.\n"


def _is_listed(alias: ast.alias, tree: ast.Module) -> bool:
    """Whether `__all__` of the module has the name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return (alias.asname or alias.name) in ast.literal_eval(node.value)
    return False


def _defined(parent: ast.Module | ast.ClassDef, head: str) -> Iterator[str]:
    """The sections of the public classes, functions and methods of a module or class."""
    for node in parent.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            yield f"{head} class `{node.name}`\n\n```python\nclass {node.name}{f'({bases})' if bases else ''}\n```\n"
            yield _doc(node)
            yield from _defined(node, head + "#")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_public(node, parent):
            yield f"{head} `{node.name}`\n\n```python\n{_signature(node)}\n```\n"
            yield _doc(node)


def _is_public(node: ast.FunctionDef | ast.AsyncFunctionDef, parent: ast.Module | ast.ClassDef) -> bool:
    decorators = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
    made = node.name == "__init__" and isinstance(parent, ast.ClassDef)
    return (made or not node.name.startswith("_")) and not decorators & {"setter", "overload"}


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = "".join(f"@{ast.unparse(one)}\n" for one in node.decorator_list)
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{kind} {node.name}({ast.unparse(node.args)}){returns}"
    if len(line) > 100:
        line = f"{kind} {node.name}(\n{_arguments(node.args)}){returns}"
    return decorators + line


def _arguments(args: ast.arguments) -> str:
    """The arguments of a long signature, one a line."""
    alone = ast.parse(f"def f({ast.unparse(args)}): ...").body[0]
    assert isinstance(alone, ast.FunctionDef)
    given = alone.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    lines = [_argument(arg, default) for arg, default in zip(plain, defaults)]
    if given.posonlyargs:
        lines.insert(len(given.posonlyargs), "/")
    if given.vararg or given.kwonlyargs:
        lines.append("*" + (_argument(given.vararg, None) if given.vararg else ""))
    lines += [_argument(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        lines.append("**" + _argument(given.kwarg, None))
    return "".join(f"    {line},\n" for line in lines)


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    equals = " = " if annotation else "="
    return arg.arg + annotation + (f"{equals}{ast.unparse(default)}" if default is not None else "")
