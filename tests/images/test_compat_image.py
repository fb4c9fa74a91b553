"""The compatible view: a script of the kind that other controllers run in it finds what it expects."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from built_view import skip_without_tools
from headrace import FLUX_VERSION
from headrace.images.elf import BuildError
from headrace.images.layer import write_folder
from headrace.images.release_images import compat_image

_SCRIPT = r"""
set -e
[[ $(hostname) ]] && mkdir -p /mnt/flux/view
view=$(ls /opt/views/._view/)
cp -R "/opt/views/._view/${view}"/* /mnt/flux/view
ls -l /mnt/flux/view/lib/libpython3.11.so.1.0
cp -R /opt/software /mnt/flux/
cp -R /mnt/flux/software/* /tmp
cat <<EOT >> /mnt/flux/done.txt
$(id -u) $(flux version | head -n 1)
EOT
touch /mnt/flux/complete.txt
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without_tools()
    if os.geteuid():
        pytest.skip("needs root, to change the root of a process")
    try:
        image = compat_image()
    except BuildError as exc:
        pytest.skip(str(exc))
    root = tmp_path_factory.mktemp("compat")
    for layer in image.layers:
        write_folder({path: entry for path, entry in layer.items() if not (root / path).is_dir()}, root)
    (root / "mnt/flux").mkdir(parents=True)
    return root


def test_a_script_copies_the_view_to_where_it_works(root: Path) -> None:
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/opt/view/bin"}
    done = subprocess.run(
        ["chroot", str(root), "/bin/bash", "-c", _SCRIPT], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / "mnt/flux/done.txt").read_text().split() == ["0", "commands:", FLUX_VERSION]
    assert (root / "mnt/flux/view/bin/flux").stat().st_mode & 0o111
    assert (root / "tmp/headrace").exists()
