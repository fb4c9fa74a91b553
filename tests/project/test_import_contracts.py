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
WINGS = parse(CONFIG["importlinter:contract:wings"]["wings"].strip().splitlines())
LAYERS = {
    CONFIG[f"importlinter:contract:{name}"]["containers"]: CONFIG[f"importlinter:contract:{name}"]["layers"].split("\n")
    for name in ("rooms", "formats", "wire", "sched", "cluster_queue", "engine", "broker")
}
# What has to be forbidden whatever the configuration says.
NEVER = [
    ("service.rest.v2", "engine.modules.kvs"), ("service", "engine.broker"),
    ("cluster_queue.cycle", "engine.broker.router"), ("cluster_queue", "minicluster"),
    ("sched.graph", "wire.query.listing"), ("sched.queueing", "wire.client.handle"), ("formats.spec", "wire.client"),
    ("wire.query", "engine.modules"), ("wire.compat.python.flux", "cli.main"), ("kubeflow", "engine.modules"),
    ("minicluster.api", "engine.broker"), ("minicluster.operator.builders", "engine.agent"),
    ("k8s.runtime", "minicluster"), ("k8s.objects", "flux_jobs"), ("engine.modules.sched", "service"),
    ("engine.broker.tbon", "k8s"), ("engine.shell", "wire.client"), ("images", "cluster_queue"),
]  # fmt: skip
SERVICES = CONFIG["importlinter:contract:services"]["modules"].split()


def wrong() -> Iterator[tuple[str, str]]:
    """A module that begins an import, and one that it must not import: for each two wings that no line joins, each two
    layers, and two services.
    """
    for module, imported in NEVER:
        yield f"headrace.{module}", f"headrace.{imported}"
    for one, other in product(WINGS.values(), WINGS.values()):
        if one is not other and other.name not in one.allowed:
            yield f"headrace.{one.modules[0]}", f"headrace.{other.modules[0]}"
    for container, lines in LAYERS.items():
        layers = [line.split("|")[0].strip() for line in lines if line.strip()]
        for above, below in pairwise(layers):
            yield f"{container}.{below}", f"{container}.{above}"
    yield SERVICES[0], SERVICES[-1]


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
