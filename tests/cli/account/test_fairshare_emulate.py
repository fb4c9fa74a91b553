"""`flux account-fairshare-emulate` as a user runs it."""

from __future__ import annotations

import json

import pytest

TREE = {
    "root": {
        "bank": "root",
        "children": [
            {"bank": "A", "shares": 1, "children": [{"username": "a", "usage": 7}]},
            {"bank": "B", "shares": 3, "children": [{"username": "b", "usage": 9}]},
        ],
    }
}


def test_the_fair_share_of_users_in_a_file_is_printed(flux, tmp_path):
    (tmp_path / "tree.json").write_text(json.dumps(TREE))
    table = flux("account-fairshare-emulate", "-i", "tree.json")
    assert (table.rc, table.stdout.splitlines()[2]) == (0, "b        | B    | 1      | 9     | 1.0      ")
    lines = flux("account-fairshare-emulate", "--input=tree.json", "-P").stdout
    assert lines == "b|B|1|9|1.0\na|A|1|7|0.5\n"
    assert flux("account-fairshare-emulate", "-i", "tree.json", "-o", "{username}").stdout == "b\na\n"
    assert json.loads(flux("account-fairshare-emulate", "-i", "tree.json", "-j").stdout)[0]["fairshare"] == 1.0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-i", "nosuch.json"], "fairshare-emulate: FileNotFoundError: input file not found: nosuch.json\n"),
        (["-i", "."], "fairshare-emulate: IsADirectoryError: .: Is a directory\n"),
        (["-i", "bad.json"], "fairshare-emulate: JSONDecodeError: invalid JSON in input file: Expecting"),
        (["-i", "deep.json"], "fairshare-emulate: RecursionError: deep.json: too many levels of banks\n"),
        (["-i", "empty.json"], "fairshare-emulate: ValueError: no users found in input\n"),
        (["-i", "list.json"], "fairshare-emulate: ValueError: JSON must contain 'root' key\n"),
    ],
)
def test_bad_files_are_named(flux, tmp_path, argv, message):
    (tmp_path / "bad.json").write_text("{x")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").write_text('{"root": {"bank": "root"}}')
    (tmp_path / "deep.json").write_text('{"root": ' + '{"bank": "b", "children": [' * 5000 + "]}" * 5000 + "}")
    outcome = flux("account-fairshare-emulate", *argv)
    assert (outcome.rc, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(message)
