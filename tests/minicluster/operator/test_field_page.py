"""The page of a MiniCluster's fields is made from the fields, and has all of them."""

from __future__ import annotations

import re
from pathlib import Path

from field_page import page

from headrace.minicluster.api.declarations import fields_of
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


TESTS = Path(__file__).parents[2]
TABLE = TESTS.parent / "docs/dev/field-tests.md"
_ROW = re.compile(r"\| (?P<record>\w+) \| (?P<fields>[^|]+) \| (?P<file>[\w/]+\.py) \|")


def shown() -> dict[str, str]:
    """The file of tests by RECORD.FIELD."""
    rows = [row for row in map(_ROW.fullmatch, TABLE.read_text(encoding="utf-8").splitlines()) if row]
    return {f"{row['record']}.{field}": row["file"] for row in rows for field in re.findall(r"`(\w+)`", row["fields"])}


def test_every_field_is_in_the_table() -> None:
    assert shown().keys() == {f"{record.__name__}.{name}" for record in all_records() for name in fields_of(record)}


def test_the_tests_use_the_fields_that_they_are_said_to_show() -> None:
    texts = {file: (TESTS / file).read_text(encoding="utf-8") for file in set(shown().values())}
    unused = [
        f"{name} in {file}"
        for name, file in shown().items()
        if not re.search(rf"[\"'({{ ]{name.partition('.')[2]}(\"|'|=)", texts[file])
    ]
    assert unused == []
