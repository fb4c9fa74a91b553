"""What makes `flux` and `import flux` resolve to us."""

import sys


def is_in_view() -> bool:
    """Whether this is the installation that a MiniCluster brings into a user's container (docs/dev/view.md).

    There PYTHONPATH is left as it is: the container's programs get our bindings only when they ask, by sourcing
    flux-view.sh, by `flux env` or by `flux python`.
    """
    return "_headrace_code" in sys.modules
