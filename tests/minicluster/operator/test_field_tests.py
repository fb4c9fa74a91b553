"""Every field of a MiniCluster is shown by a test: docs/dev/field-tests.md names it, and the test uses the field."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.minicluster.api.declarations import fields_of
from minicluster.api.specs import all_records

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
