from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.images import code_finder
from headrace.images.code_store import Source, compile_store, module_file

SOURCES = {
    "pack": Source("pack/__init__.py", '"""Text."""\nvalue = 1\n', True),
    "pack.inner": Source("pack/inner.py", "from . import value\nnext = value + 1\n"),
    "pack.seldom": Source("pack/seldom.py", "raise KeyError('seldom')\n" + "# long\n" * 50, compressed=True),
    "program": Source("program.py", "import sys\nprint(__name__, __file__, sys.argv[1:])\n"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "modules"
    path.write_bytes(compile_store(sys.executable, "/root/of", SOURCES))
    return path


def run(store: Path, code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """In a Python that finds the modules of the store first."""
    folder = Path(code_finder.__file__).parent
    boot = f"import sys; sys.path.insert(0, {str(folder)!r}); import code_finder; "
    boot += f"code_finder.install({str(store)!r}, '/root/of'); "
    return subprocess.run(
        [sys.executable, "-I", "-c", boot + code, *argv], capture_output=True, text=True, timeout=60, check=False
    )


def test_modules_packages_and_what_they_import_of_each_other_are_found(store: Path) -> None:
    code = "import pack.inner as i; print(i.next, i.__file__, i.__package__, sys.modules['pack'].__path__)"
    done = run(store, code)
    assert done.stdout == "2 /root/of/pack/inner.py pack ['/root/of/pack']\n", done.stderr


def test_docstrings_are_left_out(store: Path) -> None:
    assert run(store, "import pack; print(pack.__doc__)").stdout == "None\n"


def test_a_traceback_names_file_and_line_of_a_compressed_module(store: Path) -> None:
    assert 'File "/root/of/pack/seldom.py", line 1, in <module>' in run(store, "import pack.seldom").stderr


def test_a_module_runs_as_a_program(store: Path) -> None:
    done = run(store, "import runpy; sys.argv[1:] = ['x']; runpy.run_module('program', run_name='__main__')")
    assert done.stdout == "__main__ /root/of/program.py ['x']\n", done.stderr


def test_what_is_not_there_is_left_to_other_finders(store: Path) -> None:
    assert run(store, "import wave; print(wave.__file__)").stdout.endswith("wave.py\n")
    assert "No module named 'pack.absent'" in run(store, "import pack.absent").stderr


def test_the_same_modules_give_the_same_file(store: Path) -> None:
    reordered = dict(reversed(SOURCES.items()))
    assert compile_store(sys.executable, "/root/of", reordered) == store.read_bytes()


def test_a_module_that_does_not_compile_is_named(store: Path) -> None:
    with pytest.raises(ValueError, match=r"/root/of/bad\.py"):
        compile_store(sys.executable, "/root/of", {"bad": Source("bad.py", "x = = 1")})


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "modules"
    path.write_bytes(b"something else entirely")
    with pytest.raises(ImportError, match="not a file of modules"):
        code_finder.CodeFinder(str(path), "")


def test_a_compiled_module_file_is_imported_without_its_source(tmp_path: Path) -> None:
    import importlib.util

    magic = importlib.util.MAGIC_NUMBER
    (tmp_path / "alone.pyc").write_bytes(module_file(sys.executable, "/root/of/alone.py", "value = 3", magic))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import alone; print(alone.value)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "3\n", done.stderr
