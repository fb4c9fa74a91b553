"""The image `headrace-view-compat`: the view in the form that other controllers expect of a Flux view.

The Flux Operator (`spec.flux.container.image`) and Kubeflow Trainer's Flux policy (`FLUX_VIEW_IMAGE`) run their own
script in it with `/bin/bash`, which copies the only folder in `/opt/views/._view` to `/mnt/flux/view`, and
`/opt/software` next to it. So this image has a shell, the commands of such scripts, and the view at that path.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from . import elf, view
from .elf import BuildError
from .layer import Entry, file, link, program
from .oci import Image
from .view_image import digest

_SHELL = "bin/bash"
_PATH = "/opt/view/bin:/usr/local/bin:/usr/bin:/bin"


def compat_image(python: str = "") -> Image:
    """The image, with the view of `python`. Raises BuildError."""
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
    return Image([_base(), layer], {"Env": [f"PATH={_PATH}"], "Entrypoint": [f"/{_SHELL}"], "WorkingDir": "/"})


def _base() -> dict[str, Entry]:
    """bash of this machine with its libraries, and busybox for other commands. Raises BuildError."""
    bash, busybox = shutil.which("bash"), shutil.which("busybox")
    if bash is None or busybox is None:
        raise BuildError("the compatible view needs bash and a static busybox (Debian: busybox-static) of this machine")
    if elf.needs_loader(Path(busybox)):
        raise BuildError(f"{busybox} is no static program: install busybox-static")
    layer = {_SHELL: program(Path(bash).read_bytes()), "bin/busybox": program(Path(busybox).read_bytes())}
    for path in elf.needed(Path(bash)).values():
        layer[str(path).lstrip("/")] = program(path.read_bytes())
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for command in listed.split():
        layer.setdefault(f"bin/{command}", link("busybox"))
    return layer
