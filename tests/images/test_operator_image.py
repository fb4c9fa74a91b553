"""The operator's image: its file system alone is enough for `headrace operator run` and `headrace fluxqueue run`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from built_view import skip_without_tools
from headrace.images import release_images
from headrace.images.layer import write_folder
from headrace.images.oci import Image


@pytest.fixture(scope="module")
def image() -> Image:
    skip_without_tools()
    return release_images.operator_image()


@pytest.fixture(scope="module")
def root(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid():
        pytest.skip("needs root, to change the root of a process")
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o755)
    write_folder(image.layers[0], root)
    return root


def run(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = dict(one.split("=", 1) for one in release_images.OPERATOR_ENVIRONMENT)
    return subprocess.run(
        ["chroot", "--userspec=65532:65532", "--groups=", str(root), *argv],
        env={**environ, "PATH": f"/usr/sbin:/usr/bin:/sbin:/bin:{environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_its_command_is_found_in_its_path(image: Image) -> None:
    assert image.config["Env"][0] == "PATH=/opt/headrace/bin"
    assert "opt/headrace/bin/headrace" in image.layers[0]
    assert image.config["User"] == "65532:65532"


def test_every_module_of_the_operator_is_imported(root: Path) -> None:
    code = """
import sys
(finder,) = [one for one in sys.meta_path if hasattr(one, "index")]
ours = ("headrace.minicluster.operator", "headrace.flux_jobs", "headrace.cluster_queue", "headrace.programs")
names = [name for name in sorted(finder.index) if name.startswith(ours)]
for name in names:
    __import__(name)
import ssl, aiohttp.web, cryptography.x509
ssl.create_default_context()
print(len(names) > 20)
"""
    done = run(root, "/opt/headrace/libexec/python3", "-I", "-S", "-c", code)
    assert done.stdout == "True\n", done.stderr


def test_the_store_of_the_cluster_queue_has_its_drivers_and_its_schema(root: Path) -> None:
    code = """
import psycopg
from headrace.cluster_queue.store import database
store = database.opened(database.Address("sqlite:/tmp/store.sqlite"))
print(psycopg.pq.__impl__, store.rows("SELECT count(*) FROM version")[0][0] == len(database.schema()) > 0)
try:
    database.opened(database.Address("postgresql://me@127.0.0.1:1/none"))
except database.DatabaseError as exc:
    print("refused" in str(exc))
"""
    done = run(root, "/opt/headrace/libexec/python3", "-I", "-S", "-c", code)
    assert done.stdout == "binary True\nTrue\n", done.stderr


@pytest.mark.parametrize("program", ["operator", "fluxqueue"])
def test_a_program_tries_to_reach_the_cluster_that_it_is_told(root: Path, program: str) -> None:
    done = run(root, "headrace", program, "run", "--kubeconfig", "/nowhere")
    assert done.returncode != 0
    assert "/nowhere" in done.stderr and "Traceback" not in done.stderr
