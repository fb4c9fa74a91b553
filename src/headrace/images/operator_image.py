"""The image `headrace-operator`: an installation like the view with the operator and its libraries, without a shell."""

from __future__ import annotations

import sys

from headrace.k8s.packaging.images import UNPRIVILEGED

from . import stdlib, view
from .layer import Entry
from .oci import Image

PREFIX = "opt/headrace"
# psycopg imports zoneinfo, which would ask the interpreter's build configuration for PYTHONTZPATH; that is not there.
ENVIRONMENT = (f"PATH=/{PREFIX}/bin", "HOME=/tmp", "PYTHONTZPATH=/usr/share/zoneinfo")
# The packages of the extras `kube` and `fluxqueue`, and their dependencies.
_PACKAGES = {
    **view.VIEW.packages,
    "aiohappyeyeballs": (),
    "aiohttp": (),
    "aiosignal": (),
    "attr": (),
    "_cffi_backend": (),
    "cryptography": (),
    "frozenlist": (),
    # Without its code generators.
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
CONTENTS = view.Contents(
    {name: view.COMMANDS[name] for name in ("flux", "headrace")},
    _PACKAGES,
    view.NOT_IN_IMAGES,
    stdlib.LEFT_OUT_EVERYWHERE,
    stdlib.OPERATOR_EXTENSIONS,
    runs_jobs=False,
)


def operator_image(python: str = "") -> Image:
    """The image, with the interpreter of `python`. Raises BuildError."""
    tree = view.build(view.choose_interpreter(python), f"/{PREFIX}", CONTENTS)
    layer = {f"{PREFIX}/{path}": entry for path, entry in tree.items()}
    layer["tmp"] = Entry(0o1777)
    config = {
        "Env": list(ENVIRONMENT),
        "Entrypoint": ["headrace"],
        "Cmd": ["operator", "run"],
        "User": f"{UNPRIVILEGED}:{UNPRIVILEGED}",
        "WorkingDir": "/",
    }
    return Image([layer], config)
