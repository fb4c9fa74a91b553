"""`--conf`: an instance's configuration from keys, files and text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.query import QueryError
from headrace.wire.query.conf_option import merge, read_path

names = st.sampled_from("abc")
paths = st.lists(names, min_size=1, max_size=3)


@given(st.lists(st.tuples(paths, st.none() | st.booleans() | st.integers() | st.text(max_size=5)), max_size=6))
def test_what_is_said_last_of_a_key_counts_whether_as_key_or_as_text(said: list) -> None:
    texts = []
    for number, (path, value) in enumerate(said):
        table = value
        for name in reversed(path):
            table = {name: table}
        as_key = f"{'.'.join(path)}={json.dumps(value)}"
        texts.append(json.dumps(table) if number % 2 or "\n" in as_key else as_key)
    conf = merge(texts)
    for path, value in said[-1:]:
        here = conf
        for name in path:
            here = here[name]
        assert here == value


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a=word", {"a": "word"}),
        ('a="1"', {"a": "1"}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a==b", {"a": "=b"}),
        ("a=", {"a": ""}),
        ("[resource]\nnoverify = true\n", {"resource": {"noverify": True}}),
        ('  {"a": {"b": null}}', {"a": {"b": None}}),
    ],
)
def test_one_value(text: str, conf: dict) -> None:
    assert merge([text]) == conf


def test_a_table_that_is_laid_over_a_value_takes_its_place_and_the_other_way_round() -> None:
    assert merge(["a=1", "a.b=2"]) == {"a": {"b": 2}}
    assert merge(["a.b=2", "a=1"]) == {"a": 1}
    assert merge(["a.b=1", '{"a": {"c": 2}}']) == {"a": {"b": 1, "c": 2}}


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "2.toml").write_text('[queues.batch]\nrequires = ["x"]\n')
    (tmp_path / "1.toml").write_text("[queues.batch]\nrequires = []\n[queues.debug]\n")
    (tmp_path / "other.txt").write_text("not read")
    (tmp_path / "c.json").write_text('{"queues": {"debug": {"policy": {}}}}')
    both = {"queues": {"batch": {"requires": ["x"]}, "debug": {}}}
    assert read_path(str(tmp_path)) == both
    both["queues"]["debug"] = {"policy": {}}
    assert merge([str(tmp_path), str(tmp_path / "c.json")]) == both


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nowhere.toml", "--conf: No such file: nowhere.toml"),
        ("{", "--conf: failed to parse its text: "),
        ("a = \nb", "--conf: failed to parse its text: "),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        merge([text])
    assert str(caught.value).startswith(says)


def test_a_name_is_looked_for_with_the_user_and_then_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, site = (tmp_path / name / "flux" / "config" for name in ("home", "site"))
    for folder in (home, site):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"/nosuch:{tmp_path}/site")
    (site / "big.json").write_text('{"of": "site"}')
    assert merge(["big"]) == {"of": "site"}
    (home / "big.toml").write_text('of = "user"')
    assert merge(["big"]) == {"of": "user"}
    with pytest.raises(QueryError, match="--conf: named config 'nosuch' not found"):
        merge(["nosuch"])
    (home / "big.toml").write_text("of =")
    with pytest.raises(QueryError, match=f"^{home}/big.toml: parse error: "):
        merge(["big"])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(QueryError) as caught:
        merge([str(tmp_path)])
    assert str(caught.value).startswith(f"{tmp_path}/bad.toml: parse error: ")
