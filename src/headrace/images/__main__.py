"""`python -m headrace.images NAME...`: build images into a folder, or merge archives of several architectures."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from .. import __version__
from . import oci
from .elf import BuildError
from .release_images import compat_image, operator_image, view_image

_ANNOTATION = "org.opencontainers.image"
# Annotations of the OCI image specification, "Pre-Defined Annotation Keys".
_LABELS = {f"{_ANNOTATION}.version": __version__, f"{_ANNOTATION}.licenses": "Apache-2.0"}
_IMAGES = {"view": view_image, "operator": operator_image, "view-compat": compat_image}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.images", description=__doc__)
    parser.add_argument("images", nargs="*", choices=[*_IMAGES, []], help=f"which to build (all: {' '.join(_IMAGES)})")
    parser.add_argument("--into", type=Path, default=Path("build/images"), help="the folder of the archives")
    parser.add_argument("--name", default="docker.io/local/{image}:1", help="full name of each image")
    parser.add_argument("--python", default="", help="the CPython that the images hold (default: the system's)")
    parser.add_argument("--arch", default="", help="the architecture of the images, which must be this machine's")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="ARCHIVE", help="make one archive of several")
    options = parser.parse_args(argv)
    try:
        if options.merge:
            merged = oci.merge([path.read_bytes() for path in options.merge])
            _write(options.into / options.merge[0].name, merged)
            return 0
        _check_architecture(options.arch)
        for which in options.images or _IMAGES:
            image = f"headrace-{which}"
            name = options.name.format(image=image, version=__version__)
            built = _IMAGES[which](options.python)
            labelled = replace(built, config={**built.config, "Labels": {**_LABELS, f"{_ANNOTATION}.title": image}})
            _write(options.into / f"{image}.tar", oci.archive(name, labelled))
    except (BuildError, ValueError, OSError) as exc:
        print(f"headrace.images: {exc}", file=sys.stderr)
        return 1
    return 0


def _check_architecture(wanted: str) -> None:
    """Raise BuildError unless `wanted` is this machine's architecture, the only one that can be built here."""
    here = oci.this_architecture()
    if wanted and oci.architecture(wanted) != here:
        raise BuildError(
            f"images for {oci.architecture(wanted)} are built on such a machine, with its Python, compiler and "
            f"libraries; this one is {here}. Build there, bring the archive, and make one of both: "
            "python -m headrace.images --merge ONE.tar OTHER.tar"
        )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file is renamed when it is complete, since it may be read at any time.
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)
    print(f"{path}: {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
