"""Imports by a call are few and known: contracts see only `import` and `from`."""

from __future__ import annotations

import ast

from dynamic import imports_by_call
from page_blocks import ROOT

SOURCE = ROOT / "src/headrace"
# By file, what it imports by a call: each is below the file or beside it, as an ordinary import would have to be.
KNOWN = {
    # Tables of commands and of services, whose modules are imported when they are needed.
    "cli/account/main.py": {"f'headrace.cli.account.{file}'"},
    "cli/fluxqueue/main.py": {"f'headrace.cli.fluxqueue.{file}'"},
    "cli/job/main.py": {"full"},
    "cli/kvs/main.py": {"full"},
    "cli/main.py": {"full"},
    "cli/experiment/main.py": {"f'headrace.cli.experiment.{name}'"},
    "cli/mini/main.py": {"f'headrace.cli.mini.{file}'"},
    "engine/broker/module/search.py": {"'headrace.engine.modules'", "f'headrace.engine.modules.{file}'"},
    # Modules that users name.
    "engine/modules/job_ingest/validator_worker.py": {"'flux.job.validator'", "f'validator_{number}'"},
    "engine/modules/sched/options.py": {"module.replace('-', '_')"},
    "formats/spec/python_file.py": {"name"},
    # Other packages and the standard library.
    "cli/common/named_formats.py": {"module"},
    "cli/doctor.py": {"name"},
    "cli/keygen.py": {"'zmq'"},
    "engine/broker/bare_imports.py": {"name", "'msgspec'", "'traceback'", "'zmq'"},
    "formats/spec/treeobj.py": {"_MODULES[hash]"},
    "images/code_finder.py": {"name"},
    "wire/query/conf_option.py": {"'tomllib' if sys.version_info >= (3, 11) else 'tomli'"},
    # The bindings import the house from a folder for PYTHONPATH, and their own parts on first use.
    "wire/compat/python/flux/__init__.py": {"'headrace'", "module"},
    "wire/compat/python/flux/core/__init__.py": {"'flux.core.inner'"},
}


def test_only_the_named_files_import_by_a_call_and_only_what_is_named() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for _, asked in imports_by_call(ast.parse(path.read_text())):
            found.setdefault(str(path.relative_to(SOURCE)), set()).add(asked)
    assert found == KNOWN


def test_each_way_to_import_by_a_call_is_seen() -> None:
    ways = (
        "__import__('a')",
        "import_module('a')",
        "importlib.import_module(name='a')",
        "pkgutil.resolve_name('a')",
        "runpy.run_module('a')",
        "importlib.util.spec_from_file_location('a', path)",
    )
    assert [asked for way in ways for _, asked in imports_by_call(ast.parse(way))] == ["'a'"] * len(ways)
