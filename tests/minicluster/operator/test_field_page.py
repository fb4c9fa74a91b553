"""The page of a MiniCluster's fields is made from the fields, and has all of them."""

from __future__ import annotations

from pathlib import Path

from headrace.minicluster.api.declarations import fields_of
from headrace.minicluster.operator.field_page import page
from minicluster.api.specs import all_records

PAGE = Path(__file__).parents[3] / "docs/user/minicluster-fields.md"
# Objects of Kubernetes itself.
ELSEWHERE = (
    *("Resources", "SecurityContext", "PodSecurityContext", "Capabilities", "SeLinuxOptions", "SeccompProfile"),
    *("WindowsOptions", "Sysctl", "Toleration"),
)


def test_the_page_is_made_of_this_source() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make install-files`"


def test_every_field_of_a_minicluster_is_on_it() -> None:
    for record in all_records():
        for name, field in fields_of(record).items():
            if record.__name__ not in ELSEWHERE:
                row = f"| `{name}` |"
                assert any(line.startswith(row) and field.text in line for line in page().splitlines()), name


def test_types_bounds_and_defaults_are_told() -> None:
    lines = page().splitlines()
    assert any(line.startswith("| `size` | number (1 or more, 100000 or less) | `1` |") for line in lines)
    assert any(line.startswith("| `restartPolicy` | OnFailure, Never |  |") for line in lines)
    assert any(line.startswith("| `containers` | list of object | required |") for line in lines)
    assert any("| `suspend` |" in line and "not in the Flux Operator" in line for line in lines)
