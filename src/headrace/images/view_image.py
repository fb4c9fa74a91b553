"""The image `headrace-view`: the view at /view, and the program with which an init container copies it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from headrace.k8s.packaging.images import UNPRIVILEGED

from . import elf, view
from .layer import Entry, complete, file, program
from .oci import Image

COPY = "headrace-copy"
# The view's folder, for image volumes and for `headrace-copy`.
FOLDER = "view"


def view_image(python: str = "") -> Image:
    """The image, with the view of `python`. Raises BuildError."""
    return image_of(view.build(view.choose_interpreter(python)))


def image_of(tree: Mapping[str, Entry]) -> Image:
    """The image of a view."""
    with_version = {**tree, "version": file(f"{digest(tree)}\n".encode())}
    layer = {f"{FOLDER}/{path}": entry for path, entry in with_version.items()}
    layer[COPY] = program(elf.compile_static(Path(__file__).with_name("headrace_copy.c")))
    config = {
        "Entrypoint": [f"/{COPY}"],
        "Cmd": [view.PREFIX],
        # The kubelet refuses an image without a user in pods with runAsNonRoot that name none.
        "User": f"{UNPRIVILEGED}:{UNPRIVILEGED}",
        "WorkingDir": "/",
    }
    return Image([layer], config)


def digest(tree: Mapping[str, Entry]) -> str:
    """A digest of a view's contents."""
    out = hashlib.sha256()
    for path, entry in complete(tree).items():
        out.update(repr((path, entry.mode, entry.link, entry.data and hashlib.sha256(entry.data).digest())).encode())
    return out.hexdigest()
