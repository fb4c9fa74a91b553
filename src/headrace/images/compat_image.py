"""The image `headrace-view-compat`: the view as other people's controllers expect one of Flux.

The Flux Operator (`spec.flux.container.image`) and Kubeflow Trainer's Flux policy (`FLUX_VIEW_IMAGE`) run a script of
their own in it, by `/bin/bash`, which copies what is in the one folder of `/opt/views/._view` to `/mnt/flux/view`, and
`/opt/software` beside it. So there are a shell and the commands of such scripts, and the view lies there.
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
    """Raises BuildError."""
    tree = view.build(view.choose_interpreter(python))
    name = digest(tree)[:32]
    layer = {f"opt/views/._view/{name}/{path}": entry for path, entry in tree.items()}
    # Their scripts list this library, and a strict one ends where it is not there. A program that looks for the library
    # itself must find its own, so the link leads nowhere.
    layer[f"opt/views/._view/{name}/lib/libpython3.11.so.1.0"] = link("no-such-library")
    layer["opt/view"] = link(f"views/._view/{name}")
    # Its scripts copy all that is in this folder, and complain where there is nothing.
    layer["opt/software/headrace"] = file(f"view {name}\n".encode())
    layer["tmp"] = Entry(0o1777)
    layer["etc/passwd"] = file(b"root:x:0:0:root:/root:/bin/bash\n")
    layer["etc/group"] = file(b"root:x:0:\n")
    return Image([_base(), layer], {"Env": [f"PATH={_PATH}"], "Entrypoint": [f"/{_SHELL}"], "WorkingDir": "/"})


def _base() -> dict[str, Entry]:
    """bash of this machine with its libraries, and busybox for the rest. Raises BuildError."""
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
