"""What is wrong with an object: each problem has its path in the document and the rule that is broken. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
LABEL_RULE = "use lower case letters, digits and '-', and begin and end with a letter or digit"


class Problem(NamedTuple):
    """One problem: `path` in the document ("" is the file itself), and the rule that is broken."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" if self.path else self.rule
