"""The three images of a release.

`headrace-view` has the view at /view, and the program with which an init container copies it. `headrace-operator` is an
installation like the view with the operator and its libraries, without a shell.

`headrace-view-compat` has the view in the form that other controllers expect of a Flux view. The Flux Operator
(`spec.flux.container.image`) and Kubeflow Trainer's Flux policy (`FLUX_VIEW_IMAGE`) run their own script in it with
`/bin/bash`. The script copies the only folder in `/opt/views/._view` to `/mnt/flux/view`, and `/opt/software` next to
it. So this image has a shell, the commands of such scripts, and the view at that path.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.k8s.packaging.images import UNPRIVILEGED

from . import elf, stdlib, view
from .elf import BuildError
from .layer import Entry, complete, file, link, program
from .oci import Image

COPY = "headrace-copy"
# The view's folder, for image volumes and for `headrace-copy`.
FOLDER = "view"
OPERATOR_PREFIX = "opt/headrace"
# psycopg imports zoneinfo, which would look up PYTHONTZPATH in the interpreter's build configuration. The image does
# not contain that.
OPERATOR_ENVIRONMENT = (f"PATH=/{OPERATOR_PREFIX}/bin", "HOME=/tmp", "PYTHONTZPATH=/usr/share/zoneinfo")
# The packages of the extras `kube` and `fluxqueue`, and their dependencies.
OPERATOR_PACKAGES = {
    **view.VIEW.packages,
    "aiohappyeyeballs": (),
    "aiohttp": (),
    "aiosignal": (),
    "attr": (),
    "_cffi_backend": (),
    "cryptography": (),
    "frozenlist": (),
    # The code generators are left out.
    "google": ("google.protobuf.compiler", "google.protobuf.testdata"),
    "grpc": ("grpc.beta", "grpc.framework"),
    "idna": (),
    "multidict": (),
    "propcache": (),
    "psycopg": (),
    "psycopg_binary": (),
    "typing_extensions": (),
    "yarl": (),
    **({"async_timeout": ()} if sys.version_info < (3, 11) else {}),
}
OPERATOR = view.Contents(
    {name: view.COMMANDS[name] for name in ("flux", "headrace")},
    OPERATOR_PACKAGES,
    view.NOT_IN_IMAGES,
    stdlib.LEFT_OUT_EVERYWHERE,
    stdlib.OPERATOR_EXTENSIONS,
    runs_jobs=False,
)
COMPAT_SHELL = "bin/bash"
COMPAT_PATH = "/opt/view/bin:/usr/local/bin:/usr/bin:/bin"


def view_image(python: str = "") -> Image:
    """The image with the view of `python`. Raises BuildError."""
    return image_of(view.build(view.choose_interpreter(python)))


def image_of(tree: Mapping[str, Entry]) -> Image:
    """The image of a view."""
    with_version = {**tree, "version": file(f"{digest(tree)}\n".encode())}
    layer = {f"{FOLDER}/{path}": entry for path, entry in with_version.items()}
    layer[COPY] = program(elf.compile_static(Path(__file__).with_name("headrace_copy.c")))
    config = {
        "Entrypoint": [f"/{COPY}"],
        "Cmd": [view.PREFIX],
        # With runAsNonRoot, the kubelet rejects an image without a user, unless the pod names a user.
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


def operator_image(python: str = "") -> Image:
    """The operator's image, with the interpreter of `python`. Raises BuildError."""
    tree = view.build(view.choose_interpreter(python), f"/{OPERATOR_PREFIX}", OPERATOR)
    layer = {f"{OPERATOR_PREFIX}/{path}": entry for path, entry in tree.items()}
    layer["tmp"] = Entry(0o1777)
    config = {
        "Env": list(OPERATOR_ENVIRONMENT),
        "Entrypoint": ["headrace"],
        "Cmd": ["operator", "run"],
        "User": f"{UNPRIVILEGED}:{UNPRIVILEGED}",
        "WorkingDir": "/",
    }
    return Image([layer], config)


def compat_image(python: str = "") -> Image:
    """The compatibility image, with the view of `python`. Raises BuildError."""
    tree = view.build(view.choose_interpreter(python))
    name = digest(tree)[:32]
    layer = {f"opt/views/._view/{name}/{path}": entry for path, entry in tree.items()}
    # The scripts list this library, and a strict one fails without it. The link leads nowhere, so that a program that
    # needs the library uses its own.
    layer[f"opt/views/._view/{name}/lib/libpython3.11.so.1.0"] = link("no-such-library")
    layer["opt/view"] = link(f"views/._view/{name}")
    # The scripts copy the contents of this folder, and report an error if it is empty.
    layer["opt/software/headrace"] = file(f"view {name}\n".encode())
    layer["tmp"] = Entry(0o1777)
    layer["etc/passwd"] = file(b"root:x:0:0:root:/root:/bin/bash\n")
    layer["etc/group"] = file(b"root:x:0:\n")
    return Image(
        [_compat_base(), layer], {"Env": [f"PATH={COMPAT_PATH}"], "Entrypoint": [f"/{COMPAT_SHELL}"], "WorkingDir": "/"}
    )


def _compat_base() -> dict[str, Entry]:
    """bash of this machine with its libraries, and busybox for other commands. Raises BuildError."""
    bash, busybox = shutil.which("bash"), shutil.which("busybox")
    if bash is None or busybox is None:
        raise BuildError("the compatible view needs bash and a static busybox (Debian: busybox-static) of this machine")
    if elf.needs_loader(Path(busybox)):
        raise BuildError(f"{busybox} is not a static program: install busybox-static")
    layer = {COMPAT_SHELL: program(Path(bash).read_bytes()), "bin/busybox": program(Path(busybox).read_bytes())}
    for path in elf.needed(Path(bash)).values():
        layer[str(path).lstrip("/")] = program(path.read_bytes())
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for command in listed.split():
        layer.setdefault(f"bin/{command}", link("busybox"))
    return layer
