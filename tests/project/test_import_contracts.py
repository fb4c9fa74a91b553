"""The contracts of `.importlinter` stop what they forbid: in a copy of the source, each wrong import is found."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import pytest
from importlinter.domain.contract import InvalidContractOptions
from page_blocks import ROOT
from wings import parse

CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / ".importlinter")
CONTRACTS = [CONFIG[name] for name in CONFIG.sections() if name.startswith("importlinter:contract:")]
WINGS = {one["container"]: parse(one["wings"].strip().splitlines()) for one in CONTRACTS if one["type"] == "wings"}
LAYERS = {one["containers"]: one["layers"].split("\n") for one in CONTRACTS if one["type"] == "layers"}
# What has to be forbidden whatever the configuration says.
NEVER = [
    ("service.rest.v2", "engine.modules.kvs"), ("service", "engine.broker"),
    ("cluster_queue.cycle", "engine.broker.router"), ("cluster_queue", "minicluster"),
    ("sched.graph", "wire.query.listing"), ("sched.queueing", "wire.client.handle"), ("formats.spec", "wire.client"),
    ("wire.query", "engine.modules"), ("wire.compat.python.flux", "cli.main"), ("kubeflow", "engine.modules"),
    ("minicluster.api", "engine.broker"), ("minicluster.operator.builders", "engine.agent"),
    ("k8s.runtime", "minicluster"), ("k8s.objects", "flux_jobs"), ("engine.modules.sched", "service"),
    ("engine.broker.tbon", "k8s"), ("engine.shell", "wire.client"), ("images", "cluster_queue"),
    ("k8s.objects", "k8s.runtime"), ("minicluster.api", "minicluster.operator"),
    ("minicluster.operator.builders", "minicluster.operator.controller"), ("flux_jobs.read", "flux_jobs.operator"),
    ("cluster_queue.workloads", "cluster_queue.cycle"), ("cluster_queue.model", "cluster_queue.cycle"),
    ("service.store", "service.rest"), ("service.rest", "service.pages"), ("service.rest.v1", "service.rest.v2"),
    ("service.broker_link", "service.rest"), ("engine.modules.cron", "engine.modules.kvs"),
]  # fmt: skip
SERVICES = sorted(
    f"headrace.engine.modules.{path.stem}"
    for path in (ROOT / "src/headrace/engine/modules").iterdir()
    if (path.suffix == ".py" or path.is_dir())
    and path.stem not in ("__init__", "__pycache__", "background", "supervisor")
)


def wrong() -> Iterator[tuple[str, str]]:
    """A module that begins an import, and one that it must not import: for each two wings that no line joins, each two
    layers, and each two services that follow each other by name.
    """
    for module, imported in NEVER:
        yield f"headrace.{module}", f"headrace.{imported}"
    for container, wings in WINGS.items():
        for one, other in product(wings.values(), wings.values()):
            if one is not other and other.name not in one.allowed:
                yield f"{container}.{one.modules[0]}", f"{container}.{other.modules[0]}"
    for container, lines in LAYERS.items():
        layers = [line.split("|")[0].strip() for line in lines if line.strip()]
        for above, below in pairwise(layers):
            yield f"{container}.{below}", f"{container}.{above}"
    yield from pairwise(SERVICES)


def plant(source: Path, module: str, imported: str) -> str:
    """Have a module import another: a new file in a package, a line more in a file. Returns the module that does."""
    path = source / module.replace(".", "/")
    if not path.is_dir():
        with path.with_suffix(".py").open("a") as file:
            file.write(f"\nimport {imported}\n")
        return module
    (path / f"planted_{imported.replace('.', '_')}.py").write_text(f"import {imported}\n")
    return f"{module}.planted_{imported.replace('.', '_')}"


def test_each_import_that_no_contract_allows_is_refused(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.html", "*.css", "*.js", "*.svg")
    shutil.copytree(ROOT / "src/headrace", tmp_path / "headrace", ignore=ignore)
    shutil.copytree(ROOT / "tools/contracts", tmp_path / "tools/contracts", ignore=ignore)
    planted = [(plant(tmp_path, *pair), pair[1]) for pair in wrong()]
    assert len(planted) > 100
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), ROOT / ".importlinter", "--no-cache"],
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "1000"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    # A contract prints `A:LINE imports B`, `A -> B (l.LINE)`, or a chain of which the two are the ends.
    told = re.findall(r"(headrace\S*?)(?::\d+ imports | -> )(headrace[\w.]*)", done.stdout)
    assert [one for one in planted if one not in told] == []


def test_each_folder_with_code_is_a_package_which_contracts_see() -> None:
    source = ROOT / "src/headrace"
    folders = {folder for path in source.rglob("*.py") for folder in path.relative_to(source).parents}
    outside = sorted(str(one) for one in folders if not (source / one / "__init__.py").exists())
    # The folder for PYTHONPATH: contracts see the package in it.
    assert outside == ["wire/compat/python"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a", "is not NAME = MODULE"),
        ("a = one: b", "names b, which is not above it"),
        ("a = one: a", "names a, which is not above it"),
    ],
)
def test_a_line_that_says_nothing_is_refused(line: str, why: str) -> None:
    with pytest.raises(InvalidContractOptions) as caught:
        parse([line])
    assert why in str(caught.value.errors)
