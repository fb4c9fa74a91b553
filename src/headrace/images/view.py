"""The view: a complete installation for a user's container, at one fixed path.

It has its own interpreter, libraries and dynamic loader, and the code of all modules in one file. It does not depend on
the user's image, and the user's programs do not find any of it unless they name it. The interpreter is not in `bin`,
which is in the PATH of jobs, so that `python3` is the user's own. docs/dev/view.md has the layout.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from . import elf, pmix_libraries, stdlib
from .code_store import Source, compile_store, module_file
from .early import names as early_names
from .elf import BuildError
from .layer import Entry, file, link, program

PREFIX = "/mnt/flux/view"
# Libraries are not in `lib` itself, which scripts of the Flux Operator add to LD_LIBRARY_PATH of users' programs.
NATIVE = "lib/native"
# Commands in bin, with the function that each calls.
COMMANDS = {
    "flux": "headrace.cli.main:flux",
    "headrace": "headrace.cli.main:headrace",
    "headrace-pod": "headrace.minicluster.run.pod.main:main",
}
_PACKAGE = Path(__file__).resolve().parent.parent
# Third-party packages and modules that engine and commands import, each with the parts that are left out.
_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "msgspec": (),
    "zmq": ("zmq.tests", "zmq.green", "zmq.eventloop", "zmq.ssh", "zmq.log", "zmq.devices", "zmq.auth.ioloop"),
    "yaml": (),
    # Part of the standard library since CPython 3.11.
    **({"tomli": ()} if sys.version_info < (3, 11) else {}),
}
# Extension modules of these packages that are slower than an alternative, or unused.
_EXTENSIONS_LEFT_OUT = frozenset(("yaml._yaml",))


@dataclass(frozen=True)
class Contents:
    """The contents of a view or a similar installation.

    They are commands, third-party packages with the parts left out, the parts of Headrace and of the standard library
    that are left out, extension modules of the standard library, and whether jobs run in it.
    """

    commands: Mapping[str, str]
    packages: Mapping[str, tuple[str, ...]]
    not_ours: tuple[str, ...]
    left_out: frozenset[str]
    extensions: frozenset[str]
    runs_jobs: bool


# Packages for neither pods nor the operator. Images lack their dependencies, too.
NOT_IN_IMAGES = (
    "headrace.service",
    "headrace.experiments",
    "headrace.cli.experiment",
    "headrace.images",
    "headrace.kubeflow",
)
# Packages that a pod does not use: for programs that talk to the API server, and their commands.
_NOT_IN_PODS = (
    *("headrace.cluster_queue", "headrace.engine.accounting", "headrace.storage", "headrace.programs"),
    *("headrace.minicluster.operator", "headrace.minicluster.client"),
    *("headrace.flux_jobs.operator", "headrace.flux_jobs.client", "headrace.k8s.client", "headrace.k8s.metrics_api"),
    *("headrace.k8s.packaging", "headrace.k8s.progress", "headrace.k8s.runtime"),
    *("headrace.cli.api", "headrace.cli.fluxqueue", "headrace.cli.metrics_api", "headrace.cli.operator"),
    *("headrace.cli.common.controller_options", "headrace.cli.common.installing"),
)
VIEW = Contents(
    COMMANDS,
    _PACKAGES,
    (*NOT_IN_IMAGES, *_NOT_IN_PODS),
    stdlib.LEFT_OUT,
    stdlib.EXTENSIONS,
    True,
)


@dataclass(frozen=True)
class Interpreter:
    """The Python of a view: its program, version (`3.11`), built-in modules, and folders."""

    program: Path
    version: str
    builtin: frozenset[str]
    stdlib: Path
    extensions: Path
    magic: bytes


_ASK = """
import sys, json, sysconfig, importlib.util
import _sqlite3, _ctypes, _asyncio, _decimal
out = {"version": "%d.%d" % sys.version_info[:2], "builtin": sys.builtin_module_names,
       "stdlib": sysconfig.get_path("stdlib"), "extensions": _asyncio.__spec__.origin, "magic":
       importlib.util.MAGIC_NUMBER.hex(), "implementation": sys.implementation.name}
print(json.dumps(out))
"""


def describe(python: Path) -> Interpreter:
    """The interpreter of a program.

    Raises BuildError unless it is a CPython with the extension modules that brokers need.
    """
    done = subprocess.run([python, "-I", "-S", "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{python}: {(done.stderr.strip().splitlines() or ['no Python'])[-1]}")
    said = json.loads(done.stdout)
    if said["implementation"] != "cpython":
        raise BuildError(f"{python}: {said['implementation']}; the view is made of CPython")
    return Interpreter(
        python.resolve(),
        said["version"],
        frozenset(said["builtin"]),
        Path(said["stdlib"]),
        Path(said["extensions"]).parent,
        bytes.fromhex(said["magic"]),
    )


def choose_interpreter(wanted: str = "") -> Interpreter:
    """The Python at `wanted`; by default the system's, or else this environment's. Raises BuildError.

    The system's Python is usually built with optimizations. It must have the version of this environment's Python.
    """
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    candidates = [wanted] if wanted else [f"/usr/bin/python{own}", os.path.realpath(sys.executable)]
    problems = []
    for candidate in candidates:
        if not os.access(candidate, os.X_OK):
            problems.append(f"{candidate}: no program")
            continue
        try:
            found = describe(Path(candidate))
        except BuildError as exc:
            problems.append(str(exc))
            continue
        if found.version == own:
            return found
        # The wheels of this environment are for its own version.
        problems.append(f"{candidate}: Python {found.version}; the packages here are for {own}")
    raise BuildError("; ".join(problems))


def build(interpreter: Interpreter, prefix: str = PREFIX, contents: Contents = VIEW) -> dict[str, Entry]:
    """The tree of a view, or of a similar installation, for the path `prefix`. Raises BuildError."""
    lib = f"lib/python{interpreter.version}"
    root = f"{prefix}/{lib}"
    natives = _native_modules(interpreter, contents)
    sources = {**_standard(interpreter, contents), **_third_party(contents), **_own(contents)}
    early = early_names()
    sources = {name: replace(source, compressed=name not in early) for name, source in sources.items()}
    sources.update({name: Source(f"lib-dynload/{name}.so", None) for name in natives})
    sources.update(_namespaces(sources))
    with tempfile.TemporaryDirectory() as downloaded:
        machine_code = _natives(
            interpreter, natives, prefix, lib, pmix_libraries.fetch(Path(downloaded)) if contents.runs_jobs else {}
        )
    tree: dict[str, Entry] = {
        f"{lib}/modules": file(compile_store(str(interpreter.program), root, sources)),
        **_landmarks(interpreter, prefix, lib),
        **machine_code,
        **{f"{lib}/site-packages/{path}": entry for path, entry in {**_bindings(), **_schema(contents)}.items()},
        f"{lib}/site-packages/flux": link("headrace/wire/compat/python/flux"),
    }
    for name, target in contents.commands.items():
        module, _colon, function = target.partition(":")
        text = f"#!{prefix}/libexec/python3 -IS\nfrom {module} import {function} as main\n\nraise SystemExit(main())\n"
        tree[f"bin/{name}"] = program(text.encode())
    return tree


def _standard(interpreter: Interpreter, contents: Contents) -> dict[str, Source]:
    return {
        name: Source(path.relative_to(interpreter.stdlib).as_posix(), _text(path), path.name == "__init__.py")
        for name, path in stdlib.modules(interpreter.stdlib, contents.left_out).items()
    }


def _text(path: Path) -> str:
    # Decodes the source as the compiler does.
    return importlib.util.decode_source(path.read_bytes())


def _third_party(contents: Contents) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for package, unused in contents.packages.items():
        place = _place_of(package)
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            name = _module_name(path, place.parent)
            if name and path.suffix == ".py" and not _is_below(name, unused):
                relative = path.relative_to(place.parent).as_posix()
                found[name] = Source(f"site-packages/{relative}", _text(path), path.name == "__init__.py")
    return found


def _namespaces(names: Iterable[str]) -> dict[str, Source]:
    """Packages without a file of their own (PEP 420); a store of modules has an empty module for each."""
    known = set(names)
    above = {name.rpartition(".")[0] for name in known if "." in name}
    above |= {name.rpartition(".")[0] for name in above if "." in name}
    return {name: Source(f"site-packages/{name.replace('.', '/')}/__init__.py", "", True) for name in above - known}


def _own(contents: Contents) -> dict[str, Source]:
    """All modules of Headrace, except the bindings, which are files, and the parts left out."""
    found: dict[str, Source] = {}
    bindings = _PACKAGE / "wire" / "compat" / "python"
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = _module_name(path, _PACKAGE.parent)
        if name and bindings not in path.parents and not _is_below(name, contents.not_ours):
            relative = path.relative_to(_PACKAGE.parent).as_posix()
            found[name] = Source(f"site-packages/{relative}", _text(path), path.name == "__init__.py")
    return found


def _module_name(path: Path, root: Path) -> str:
    """The full name of the module at `path`; "" for a file that cannot be imported."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _is_below(name: str, packages: Iterable[str]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in packages)


def _place_of(name: str) -> Path:
    """The folder of a package, or the file of a module."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if spec is None or spec.origin is None:
        raise BuildError(f"package {name} is not installed here")
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _native_modules(interpreter: Interpreter, contents: Contents) -> dict[str, Path]:
    """The file of each extension module by full name."""
    found: dict[str, Path] = {}
    for name in sorted(contents.extensions - interpreter.builtin):
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = interpreter.extensions / f"{name}{suffix}"
            if path.exists():
                found[name] = path
                break
    for package in contents.packages:
        place = _place_of(package)
        for path in sorted(place.rglob("*.so")) if place.is_dir() else [place]:
            name = ".".join([*path.relative_to(place.parent).parent.parts, path.name.partition(".")[0]])
            if path.suffix == ".so" and name not in _EXTENSIONS_LEFT_OUT:
                found[name] = path
    return found


def _natives(
    interpreter: Interpreter, natives: Mapping[str, Path], prefix: str, lib: str, more: Mapping[str, Path]
) -> dict[str, Entry]:
    """The interpreter, extension modules, loader and libraries, with `more` files, relocated below `prefix`."""
    folder = f"{prefix}/{NATIVE}"
    loader = elf.interpreter(interpreter.program)
    libraries = dict(more)
    for path in (interpreter.program, *natives.values(), *list(libraries.values())):
        libraries.update({name: found for name, found in elf.needed(path).items() if name not in libraries})
    out = {
        "libexec/python3": program(elf.relocated(interpreter.program, folder, f"{folder}/{loader.name}")),
        f"{NATIVE}/{loader.name}": program(loader.read_bytes()),
    }
    libc = libraries["libc.so.6"].resolve().parent
    for name, path in sorted(libraries.items()):
        if name == loader.name:
            continue
        # The C library is not relocated: it needs only its own parts, which are in its folder.
        own = path.resolve().parent == libc and _is_glibc(name)
        out[f"{NATIVE}/{name}"] = program(elf.stripped(path) if own else elf.relocated(path, folder))
    for name, path in natives.items():
        out[f"{lib}/lib-dynload/{name}.so"] = program(elf.relocated(path, folder))
    return out


def _is_glibc(name: str) -> bool:
    return name.partition(".")[0] in ("libc", "libm", "libdl", "libpthread", "librt", "libutil", "libresolv")


_HOOK = "import _headrace_code\n"


def _landmarks(interpreter: Interpreter, prefix: str, lib: str) -> dict[str, Entry]:
    """The files by which the interpreter finds its folders, and package encodings.

    Package encodings is the interpreter's first import; it installs the finder.
    """

    def compiled(name: str, text: str) -> Entry:
        return file(module_file(str(interpreter.program), f"{prefix}/{lib}/{name}", text, interpreter.magic))

    finder = (Path(__file__).parent / "code_finder.py").read_text()
    finder += "\n_here = __file__.rpartition('/')[0]\ninstall(_here + '/modules', _here)\n"
    return {
        f"{lib}/os.pyc": compiled("os.py", _text(interpreter.stdlib / "os.py")),
        f"{lib}/encodings/__init__.pyc": compiled(
            "encodings/__init__.py", _HOOK + _text(interpreter.stdlib / "encodings" / "__init__.py")
        ),
        f"{lib}/_headrace_code.pyc": compiled("_headrace_code.py", finder),
    }


def _bindings() -> dict[str, Entry]:
    """Package flux, and the modules of Headrace that it imports, as files for users' own Pythons of any version."""
    out: dict[str, Entry] = {}
    flux = _PACKAGE / "wire" / "compat" / "python"
    pending = sorted(flux.rglob("*.py"))
    seen = set(pending)
    while pending:
        path = pending.pop()
        out[path.relative_to(_PACKAGE.parent).as_posix()] = file(path.read_bytes())
        for name in _imported(path):
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                source = _source_of(parts[:depth])
                if source is not None and source not in seen:
                    seen.add(source)
                    pending.append(source)
    for path in sorted((_PACKAGE / "formats" / "spec").glob("*.txt")):
        out[path.relative_to(_PACKAGE.parent).as_posix()] = file(path.read_bytes())
    return out


def _schema(contents: Contents) -> dict[str, Entry]:
    """The SQL files, if the contents include the package that reads them."""
    found = (path for path in sorted(_PACKAGE.rglob("*.sql")))
    names = {path: path.relative_to(_PACKAGE.parent) for path in found}
    return {
        name.as_posix(): file(path.read_bytes())
        for path, name in names.items()
        if not _is_below(".".join(name.parent.parts), contents.not_ours)
    }


def _imported(path: Path) -> set[str]:
    """The modules of Headrace that a file imports, including imports inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{one.name}" for one in node.names)
    return {name for name in names if name.partition(".")[0] == "headrace"}


def _source_of(parts: list[str]) -> Path | None:
    base = _PACKAGE.parent.joinpath(*parts)
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.exists():
            return path
    return None


def write(tree: Mapping[str, Entry], folder: Path) -> None:
    """Write the view into `folder`, whose previous contents are removed."""
    from .layer import write_folder

    shutil.rmtree(folder, ignore_errors=True)
    write_folder(tree, folder)
