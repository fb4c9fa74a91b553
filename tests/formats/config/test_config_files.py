"""Configuration: folders merge in name order, settings win, and every error names its file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.config.files import ConfigError, from_options, load, merge, setting


def test_a_folder_is_merged_table_by_table(tmp_path):
    (tmp_path / "a.toml").write_text("[queues.batch]\nrequires = ['x']\n[policy]\na = 1\n")
    (tmp_path / "b.toml").write_text("[queues.debug]\n[policy]\na = 2\n")
    assert load(str(tmp_path)) == {"queues": {"batch": {"requires": ["x"]}, "debug": {}}, "policy": {"a": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", {"a": {"b": 3}}),
        ("a.b=word", {"a": {"b": "word"}}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a='q'", {"a": "q"}),
        ('{"x": {"y": 1}}', {"x": {"y": 1}}),
        ("[t]\nk = 1", {"t": {"k": 1}}),
    ],
)
def test_settings(text, value):
    assert setting(text) == value


def test_settings_win_over_files(tmp_path):
    (tmp_path / "c.toml").write_text("[t]\na = 1\nb = 1\n")
    assert from_options(str(tmp_path / "c.toml"), ["t.b=2"]) == {"t": {"a": 1, "b": 2}}


def test_errors_name_the_file_and_the_line(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("[t]\nx = = 1\n")
    with pytest.raises(ConfigError, match=r"bad\.toml: .*line 2"):
        load(str(bad))
    with pytest.raises(ConfigError, match="nosuch"):
        load(str(tmp_path / "nosuch"))
    with pytest.raises(ConfigError):
        setting("novalue")


@given(st.binary(max_size=200))
def test_any_file_gives_a_table_or_a_config_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("toml") / "f.toml"
    path.write_bytes(data)
    try:
        assert isinstance(load(str(path)), dict)
    except ConfigError as exc:
        assert "f.toml" in str(exc)


def test_merge_changes_neither_side():
    base, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(base, over) == {"a": {"b": 1, "c": 2}}
    assert (base, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})
