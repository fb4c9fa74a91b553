"""The page of a MiniCluster's fields is made from the fields, and has all of them."""

from __future__ import annotations

from pathlib import Path

from headrace.minicluster.api.field_docs import DESCRIPTIONS
from headrace.minicluster.operator.field_page import page

PAGE = Path(__file__).parents[3] / "docs/user/minicluster-fields.md"
# Objects of Kubernetes itself.
ELSEWHERE = (
    *("Resources", "SecurityContext", "PodSecurityContext", "Capabilities", "SeLinuxOptions", "SeccompProfile"),
    *("WindowsOptions", "Sysctl", "Toleration"),
)


def test_the_page_is_made_of_this_source() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make install-files`"


def test_every_field_of_a_minicluster_is_on_it() -> None:
    for name, text in DESCRIPTIONS.items():
        record, _, field = name.partition(".")
        if record not in ELSEWHERE:
            assert any(line.startswith(f"| `{field}` |") and text in line for line in page().splitlines()), name


def test_types_bounds_and_defaults_are_told() -> None:
    lines = page().splitlines()
    assert any(line.startswith("| `size` | number (1 or more, 100000 or less) | `1` |") for line in lines)
    assert any(line.startswith("| `restartPolicy` | OnFailure, Never |  |") for line in lines)
    assert any(line.startswith("| `containers` | list of object | required |") for line in lines)
    assert any("| `suspend` |" in line and "not in the Flux Operator" in line for line in lines)
