"""The image `headrace-operator`: an installation as the view is, with the operator and its libraries; no shell."""

from __future__ import annotations

from . import stdlib, view
from .layer import Entry
from .oci import Image

PREFIX = "opt/headrace"
# The packages of the extra `kube`, and what they import.
_PACKAGES = {
    **view.VIEW.packages,
    "aiohappyeyeballs": (),
    "aiohttp": (),
    "aiosignal": (),
    "attr": (),
    "_cffi_backend": (),
    "cryptography": (),
    "frozenlist": (),
    "idna": (),
    "multidict": (),
    "propcache": (),
    "typing_extensions": (),
    "yarl": (),
}
CONTENTS = view.Contents(
    {name: view.COMMANDS[name] for name in ("flux", "headrace")},
    _PACKAGES,
    ("headrace.images",),
    stdlib.LEFT_OUT_EVERYWHERE,
    stdlib.OPERATOR_EXTENSIONS,
    runs_jobs=False,
)
# Nobody in particular: the number that images without users have for it.
_USER = "65532:65532"


def operator_image(python: str = "") -> Image:
    """Raises BuildError."""
    tree = view.build(view.choose_interpreter(python), f"/{PREFIX}", CONTENTS)
    layer = {f"{PREFIX}/{path}": entry for path, entry in tree.items()}
    layer["tmp"] = Entry(0o1777)
    config = {
        "Env": [f"PATH=/{PREFIX}/bin", "HOME=/tmp"],
        "Entrypoint": ["headrace"],
        "Cmd": ["operator", "run"],
        "User": _USER,
        "WorkingDir": "/",
    }
    return Image([layer], config)
