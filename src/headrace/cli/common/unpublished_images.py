"""A notice for commands that print manifests: a development version names images that no registry has."""

from __future__ import annotations

import sys


def notice(*options: str) -> None:
    """Write one line to standard error unless this version is a release. `options` name the images that are defaults
    (`--image`); none writes nothing.
    """
    from headrace.k8s.packaging import images

    if options and not images.is_release():
        sys.stderr.write(
            "headrace: this is a development version, whose images are not published: build them with `make images`, "
            f"push them to a registry of yours, and name them with {' and '.join(options)}\n"
        )
