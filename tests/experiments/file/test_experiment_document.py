"""YAML as experiments read it: values with their lines, and an error with a line for all that is not plain data."""

from __future__ import annotations

import pytest

from headrace.experiments.file.document import MOST_VALUES, parse
from headrace.experiments.file.problems import InvalidExperiment


def problem(text: str) -> str:
    with pytest.raises(InvalidExperiment) as caught:
        parse(text)
    return str(caught.value)


def test_values_have_the_lines_of_their_keys() -> None:
    document = parse("# first\na:\n  b:\n    - 1\n    - c: |\n        text\n        more\n")
    assert document.find("a").line == 2
    assert [item.line for item in document.find("a.b").data] == [4, 5]
    text = document.find("a.b[1].c")
    assert (text.key, text.line, text.begins, text.data) == ("a.b[1].c", 5, 6, "text\nmore\n")
    assert document.find("a.nothing.below").key == "a"
    assert document.plain() == {"a": {"b": [1, {"c": "text\nmore\n"}]}}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        # The core schema of YAML 1.2, section 10.3.2; PyYAML's own schema reads the first four otherwise.
        ("no", "no"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        ("0o17", 15),
        ("012", 12),
        ("-7", -7),
        (".5", 0.5),
        ("0x1F", 31),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, data: object) -> None:
    found = parse(f"a: {text}\n").find("a").data
    assert found == data
    assert type(found) is type(data)


def test_anchors_and_merges_are_resolved() -> None:
    document = parse("x: &one {a: 1, b: 1}\ny: &two {b: 2, c: 2}\nz:\n  c: 3\n  <<: [*one, *two]\n")
    assert document.plain()["z"] == {"a": 1, "b": 1, "c": 3}
    assert parse("x: &one {a: 1}\nz:\n  a: 2\n  <<: *one\n").plain()["z"] == {"a": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": the file is empty: `headrace experiment init` writes one"),
        ("a: 1\nb: 2\na: 3\n", ":3: a: is given twice, first in line 1"),
        ("a:\n  1: 2\n", ':2: a: the key "1" is not text: put it in quotes'),
        ("a:\n  ? [b]\n  : 2\n", ":2: a: a key is a list or a mapping"),
        ("a: b\0c\n", ":1: a NUL byte: this is not a text file"),
        ("a: {{size}}\n", ':1: a: a key is a list or a mapping: put a text that begins with "{{" or "[" in quotes'),
        ('a: "b\\0c"\n', ":1: a: must not contain the character NUL"),
        ("a:\n\tb: 1\n", ":2: not YAML: found character that cannot start any token"),
        ("a: 1\nb: \x07\n", ":2: not YAML: character"),
        ("a: *b\n", ":1: not YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", ":3: a second document: a file describes one experiment"),
        ("a: !!binary aGk=\n", ":1: a: the tag !!binary is not allowed"),
        ("a: !!python/object/apply:os.system ['id']\n", ":1: a: the tag !!python/object/apply:os.system is not"),
        ("a: .nan\n", ":1: a: .nan is not a finite number"),
        ("a: 1e400\n", ":1: a: 1e400 is not a finite number"),
        (f"a: 1{'0' * 5000}\n", ":1: a: 100000000000000000000000000000 is too large a number"),
        (f"a: {1 << 63}\n", f":1: a: {1 << 63} is too large a number"),
        ("a: &a [*a]\n", ": nested more than 50 levels deep, or an alias that contains itself"),
        (f"a: {'[' * 20_000}{']' * 20_000}\n", ": not YAML: "),
        (f"a: {'{b: ' * 3000}1{'}' * 3000}\n", ": not YAML: nested too deeply"),
        ("a: {<<: 1}\n", ":1: a.<<: must be a mapping, or a list of mappings"),
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_line(text: str, expected: str) -> None:
    assert expected in problem(text)


def test_a_large_file_is_refused_before_it_is_parsed() -> None:
    assert problem("#" * 1_000_001) == ": larger than 1 MB"


def test_aliases_of_aliases_are_bounded() -> None:
    """A "billion laughs": eight levels of ten aliases each."""
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert f"more than {MOST_VALUES:,} values, with those that aliases (*NAME) repeat" in problem("\n".join(lines))
