"""`$(NAME)` in a container's command, args and variables, as the kubelet expands it.

`$$` is a dollar sign, so that `$$(NAME)` stays as text; a reference to a variable that is not there, or without its
closing parenthesis, is left as it is (documentation of the Container's fields `command` and `env[].value`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its references to `variables` replaced."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else variables.get(name, found[0])

    return _REFERENCE.sub(value, text)
