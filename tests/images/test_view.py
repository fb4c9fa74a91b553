"""The view, at a folder of the test: what it holds, and that it needs nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from built_view import BuiltView, skip_without_tools
from headrace import __version__
from headrace.images import early, pmix_libraries, stdlib, view
from headrace.images.code_finder import CodeFinder
from headrace.images.layer import complete
from headrace.wire.client.installation import BINDINGS

# Debian's Python 3.11 has most extension modules built in; others have them in files, and are larger.
SYSTEMS = sys.version_info[:2] == (3, 11)
LARGEST = 25_300_000 if SYSTEMS else 30_000_000
LARGEST_PMIX = 3_200_000
MOST_FILES = 160 if SYSTEMS else 200


def run(built: BuiltView, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A program of the view in a bare environment."""
    return subprocess.run(
        [str(built.folder / argv[0]), *argv[1:]],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(built.folder.parent), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_small() -> None:
    """At the path of containers: code names the path of its source."""
    skip_without_tools()
    tree = view.build(view.choose_interpreter())
    files = {path: len(entry.data) for path, entry in complete(tree).items() if entry.data is not None}
    pmix = sum(files[f"{view.NATIVE}/{name}"] for name in pmix_libraries.NAMES)
    assert pmix <= LARGEST_PMIX
    assert sum(files.values()) - pmix <= LARGEST
    assert len(files) <= MOST_FILES


def test_what_a_start_imports_is_not_compressed(built_view: BuiltView) -> None:
    """Else a broker's start pays for decompressing it: `python -m headrace.images.early` writes the list anew."""
    folder = built_view.folder
    (store,) = folder.glob("lib/python3*/modules")
    index = CodeFinder(str(store), "").index
    interpreter = [str(folder / "libexec/python3"), "-I", "-S", str(folder / "bin/flux")]
    loaded = early.imported(
        [*interpreter[:1], *interpreter[1:], *early.START], {"TMPDIR": str(folder.parent), "PATH": "/bin"}
    )
    assert "headrace.engine.broker.tbon.overlay" in loaded and "headrace.engine.modules.job_manager.service" in loaded
    wanted = {name for name in loaded & index.keys() if not name.startswith(early.COMPRESSED)}
    slow = {name: index[name][3] for name in wanted if index[name][4]}
    assert sum(slow.values()) < 40_000, slow


def test_commands_say_their_version(built_view: BuiltView) -> None:
    for name in ("flux", "headrace"):
        done = run(built_view, f"bin/{name}", "version")
        assert __version__ in done.stdout, done.stderr


def test_an_instance_runs_a_job(built_view: BuiltView) -> None:
    done = run(built_view, "bin/flux", "start", "--test-size=2", "flux", "run", "-N2", "-l", "echo", "there")
    assert sorted(done.stdout.splitlines()) == ["0: there", "1: there"], done.stderr


def test_every_module_is_there_and_is_imported_from_the_view(built_view: BuiltView) -> None:
    """Each module of Headrace that the view has is imported, so that none lacks what was left out."""
    code = """
import sys
(finder,) = [one for one in sys.meta_path if hasattr(one, "index")]
for name in sorted(finder.index):
    if name.startswith("headrace.") and not name.endswith("__main__"):
        __import__(name)
files = [getattr(module, "__file__", None) or sys.prefix for module in sys.modules.values()]
outside = [file for file in files if not file.startswith(sys.prefix)]
print(outside, len(sys.modules) > 300)
"""
    done = run(built_view, "libexec/python3", "-I", "-S", "-c", code)
    assert done.stdout == "[] True\n", done.stderr


# Modules of the standard library that our code imports and the view lacks, and why that is right.
WITHOUT: dict[str, str] = {
    "ssl": "imported for users' own modules, which find asyncio complete where it is there",
    "curses": "for `flux top`, which says that it is missing: its library and the terminals would be a megabyte",
}


def test_what_functions_import_of_the_standard_library_is_there(built_view: BuiltView) -> None:
    wanted = set()
    package = Path(view.__file__).parent.parent
    elsewhere = [package / one.replace(".", "/").removeprefix("headrace/") for one in view.VIEW.not_ours]
    for path in package.rglob("*.py"):
        if not {*path.parents, path.with_suffix("")} & {*elsewhere, Path(BINDINGS)}:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    wanted.update(one.name for one in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    wanted.add(node.module)
    wanted = {name for name in wanted if name.partition(".")[0] in sys.stdlib_module_names}
    code = "import os.path, sys, importlib.util as u; print(*[name for name in sys.argv[1:] if not u.find_spec(name)])"
    done = run(built_view, "libexec/python3", "-I", "-S", "-c", code, *sorted(wanted))
    assert set(done.stdout.split()) == WITHOUT.keys(), done.stderr


def test_it_maps_no_library_of_the_machine(built_view: BuiltView) -> None:
    code = """
import sqlite3, ctypes, asyncio, zmq, msgspec, decimal, xml.etree.ElementTree, unicodedata, zlib
files = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print([one for one in files if ".so" in one and not one.startswith(__import__("sys").prefix)])
"""
    done = run(built_view, "libexec/python3", "-I", "-S", "-c", code, LD_LIBRARY_PATH="/lib:/usr/lib/x86_64-linux-gnu")
    assert done.stdout == "[]\n", done.stderr


def test_the_pmix_library_is_loaded_from_the_view(built_view: BuiltView) -> None:
    code = """
import ctypes, sys
from headrace.engine.shell import pmix
ctypes.CDLL(pmix.find_library())
files = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
print(any("libpmix" in one for one in files), [one for one in files if not one.startswith(sys.prefix)])
"""
    done = run(built_view, "libexec/python3", "-I", "-S", "-c", code)
    assert done.stdout == "True []\n", done.stderr


def test_the_interpreter_is_out_of_the_way_of_jobs(built_view: BuiltView) -> None:
    """`bin` comes first in the PATH of jobs: it has our commands and nothing that users have themselves."""
    assert sorted(os.listdir(built_view.folder / "bin")) == sorted(view.COMMANDS)


def test_a_users_own_python_imports_flux(built_view: BuiltView) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import flux, flux.job, headrace; print(flux.__file__, headrace.__file__)"],
        env={
            "PYTHONPATH": str(
                next(built_view.folder.glob("lib/python3*/site-packages")) / "headrace/wire/compat/python"
            )
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert all(word.startswith(str(built_view.folder)) for word in done.stdout.split()), done.stderr
    assert len(done.stdout.split()) == 2


def test_users_programs_find_none_of_our_libraries_where_flux_has_its_own(built_view: BuiltView) -> None:
    """Scripts of Flux's operator add the folder `lib` to LD_LIBRARY_PATH."""
    assert [one.name for one in (built_view.folder / "lib").iterdir() if one.is_file()] == []


def test_jobs_get_no_variable_that_their_programs_would_stumble_over(built_view: BuiltView) -> None:
    done = run(built_view, "bin/flux", "start", "flux", "run", "env")
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "FLUX_URI" in names, done.stderr
    assert not names & {"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH"}


def test_who_asks_for_the_bindings_gets_them(built_view: BuiltView) -> None:
    code = "import flux, flux.job; print(len(flux.__file__) > 0)"
    assert run(built_view, "bin/flux", "python", "-c", code).stdout == "True\n"
    done = run(built_view, "bin/flux", "env", sys.executable, "-S", "-c", code)
    assert done.stdout == "True\n", done.stderr
    folder = next(built_view.folder.glob("lib/python3*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_what_is_left_out_of_the_standard_library_is_out_with_what_is_in_it() -> None:
    assert stdlib.is_left_out("unittest.mock") and stdlib.is_left_out("xml.dom.minidom")
    assert not stdlib.is_left_out("xml.etree.ElementTree")
    assert stdlib.is_left_out("encodings.big5") and not stdlib.is_left_out("encodings.utf_8")


def test_a_view_is_the_same_each_time(built_view: BuiltView) -> None:
    again = view.build(view.choose_interpreter(), str(built_view.folder))
    assert {path: entry for path, entry in again.items() if built_view.tree[path] != entry} == {}
    assert again.keys() == built_view.tree.keys()


@pytest.mark.parametrize(
    ("says", "word"),
    [
        ("echo oops >&2; exit 1", "oops"),
        ("""echo '{"implementation": "pypy"}'""", "pypy"),
        (
            """echo '{"implementation": "cpython", "version": "2.7", "builtin": [], """
            """"stdlib": "", "extensions": "", "magic": ""}'""",
            "Python 2.7",
        ),
    ],
)
def test_an_interpreter_that_does_not_fit_is_refused(tmp_path: Path, says: str, word: str) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\n{says}\n")
    other.chmod(0o755)
    with pytest.raises(view.BuildError, match=word):
        view.choose_interpreter(str(other))
