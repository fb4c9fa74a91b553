"""Named formats of `-o`: a command's own, and those that users and sites add."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.common.named_formats import Formats, refused
from headrace.wire.query.format import FormatError

OWN = {"long": "{id} {name}"}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "SITE", "OTHER"):
        (tmp_path / name / "flux").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "HOME"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path}/SITE:{tmp_path}/OTHER")
    return tmp_path


def resolve(text: str, group: str = "") -> Optional[str]:
    return Formats("flux-x", OWN, {"long": "The long one"}, group, ("list", "drain") if group else ()).resolve(text)


def test_a_name_or_a_format_is_a_format() -> None:
    assert resolve("long") == "{id} {name}"
    assert resolve("{n}") == "{n}"
    with pytest.raises(FormatError, match="Unknown format name nosuch"):
        resolve("nosuch")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flux-x.json", '{"formats": {"mine": {"format": "{id.words}", "description": "My one"}}}'),
        ("flux-x.yaml", "formats:\n  mine:\n    description: My one\n    format: '{id.words}'\n"),
        ("flux-x.toml", "[formats.mine]\nformat = '{id.words}'\ndescription = 'My one'\n"),
    ],
)
def test_a_file_adds_formats(folders: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folders / "SITE" / "flux" / name).write_text(text)
    assert resolve("mine") == "{id.words}"
    assert resolve("help") is None
    assert capsys.readouterr().out.splitlines()[-2:] == ["  long         The long one", "  mine         My one"]
    assert resolve("get-config=mine") is None
    assert capsys.readouterr().out == '[formats.mine]\ndescription = "My one"\nformat = "{id.words}"\n'


def test_the_user_wins_over_sites_and_the_first_site_over_others(folders: Path) -> None:
    for name, shown in (("OTHER", "o"), ("SITE", "s"), ("HOME", "h")):
        (folders / name / "flux" / "flux-x.json").write_text(f'{{"formats": {{"mine": {{"format": "{shown}"}}}}}}')
        assert resolve("mine") == shown


def test_commands_with_subcommands_have_a_table_for_each(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folders / "HOME" / "flux" / "flux-x.json"
    path.write_text('{"drain": {"formats": {"mine": {"format": "{n}"}}}}')
    assert resolve("mine", "drain") == "{n}"
    assert resolve("get-config=mine", "drain") is None
    assert capsys.readouterr().out.startswith("[drain.formats.mine]\n")
    with pytest.raises(FormatError):
        resolve("mine", "list")
    path.write_text('{"odd": {}}')
    with pytest.raises(CommandError, match="invalid key odd"):
        resolve("mine", "list")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"formats": {"mine": {}}}', "required key 'format' is missing"),
        ('{"formats": {"mine": {"format": 42}}}', "must be a string"),
        ('{"formats": {"mine": 42}}', "must be a mapping"),
        ('{"formats": "yay"}', "must be a mapping"),
        ('{"formats": {"long": {"format": "{id}"}}}', "override of builtin format long"),
        ('{"formats": ', "flux-x.json: "),
    ],
)
def test_what_is_wrong_with_a_file_is_said(folders: Path, text: str, message: str) -> None:
    (folders / "HOME" / "flux" / "flux-x.json").write_text(text)
    with pytest.raises(CommandError, match=message):
        resolve("help")


def test_somebody_at_a_terminal_sees_all_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    error = FormatError("Unknown format field: x", " (known are id, name)")
    assert refused(error).text == "Unknown format field: x"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert refused(error).text == "Unknown format field: x (known are id, name)"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("id", r"did you mean '\{id\}'\?"),
        ("id name", r"did you mean '\{id\} \{name\}'\?"),
        ("id:>12,name", r"did you mean '\{id:>12\} \{name\}'\?"),
        ("lnog", r"-o help lists the names; .*fields stand in braces"),
        ("id lnog", "fields stand in braces"),
        ("", "fields stand in braces"),
    ],
)
def test_a_format_whose_braces_were_forgotten_gets_them_in_a_hint(text: str, hint: str) -> None:
    with pytest.raises(FormatError, match=f"Unknown format name {text} .*{hint}"):
        Formats("flux-x", OWN, {}).resolve(text, ("id", "name"))
