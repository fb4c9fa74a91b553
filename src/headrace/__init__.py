"""Headrace: a Flux-compatible workload manager.

Rooms and who may import whom are described in docs/dev/architecture.md; this file stays small so that
importing any room costs nothing else.
"""

# The one place of the version (PEP 440): wheel, images, charts and install files take it from here. It ends in `.devN`
# between releases (docs/dev/release.md).
__version__ = "0.1.0.dev0"

# The version of flux-core whose commands, protocols and bindings this implements. Programs choose their syntax by it.
FLUX_VERSION = "0.88.0"
