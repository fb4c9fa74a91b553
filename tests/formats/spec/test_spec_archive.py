"""File archives."""

import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.spec import archive
from headrace.formats.spec.archive import ArchiveError, File


def one(obj: Any) -> File:
    (found,) = archive.read(obj)
    return found


def test_entries_made_of_content() -> None:
    assert archive.entry("#!/bin/sh\n", 0o700) == {"mode": 33216, "data": "#!/bin/sh\n", "encoding": "utf-8"}
    assert archive.entry({"a": 1}) == {"mode": 33152, "data": {"a": 1}}
    assert archive.entry(b"\xff")["encoding"] == "base64"
    assert archive.entry(b"") == {"mode": 33152, "size": 0}
    with pytest.raises(ArchiveError, match="cannot be JSON"):
        archive.entry({1, 2})


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"\0" * 3000, "base64"),
        (b"\x1b[31m" * 600, "base64"),
        (b'{"a":"b",\r\n\t"c":"d"}\n' * 100, "utf-8"),
        ("\u6d41\u308c\n".encode() * 100, "utf-8"),
        (b"x" * 15 + b"\0", "utf-8"),
        (b"x" * 13 + b"\0", "base64"),
    ],
)
def test_what_json_would_blow_up_goes_as_base64_and_text_stays_text(
    content: bytes, encoding: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(content)
    for made in (archive.entry(content), archive.entry_from_path(str(tmp_path / "file"))):
        assert made["encoding"] == encoding
        assert len(json.dumps(made, ensure_ascii=False).encode()) < len(content) * 2 + 150
        assert one({"x": made}).data == content


@pytest.mark.parametrize(
    ("obj", "kind", "data"),
    [
        ({"path": "data/empty", "mode": 33204, "size": 0, "mtime": 1677604909, "ctime": 1677604909}, "file", b""),
        (
            {"path": "c.json", "mode": 33204, "data": {"resource": {"exclude": "n"}}},
            "file",
            b'{"resource": {"exclude": "n"}}',
        ),
        ({"path": "d.csv", "mode": 33204, "encoding": "utf-8", "data": "a\nb\n", "size": 4}, "file", b"a\nb\n"),
        ({"path": "v.dat", "mode": 33204, "encoding": "base64", "data": "MzU0", "size": 3}, "file", b"354"),
        ({"path": "appdata/phase1", "mode": 16893, "mtime": 1, "ctime": 1}, "directory", b""),
    ],
)
def test_objects_of_rfc_37(obj: Dict[str, Any], kind: str, data: bytes) -> None:
    found = one([obj])
    assert (found.path, found.kind, found.data) == (obj["path"], kind, data)


def test_symbolic_links_and_blobs() -> None:
    assert one({"src": {"mode": 41471, "data": "/users/fred"}}).target == "/users/fred"
    blobs = [[0, 10, "sha1-d4a0"], [10, 4, "sha1-3eb8"]]
    found = one({"k.img": {"mode": 33261, "size": 14, "encoding": "blobvec", "data": blobs}})
    assert (found.size, found.blobs, found.perms) == (14, [(0, 10, "sha1-d4a0"), (10, 4, "sha1-3eb8")], 0o755)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (3, "archive: must be"),
        ([{"mode": 33152}], r"archive\[0\].path: must be a string"),
        ({"a": 3}, r"files\['a'\]: must be an object"),
        ({"a": {}}, "mode: must be an integer"),
        ({"a": {"mode": 0o020666}}, "neither a regular file"),
        ({"/etc/passwd": {"mode": 33152}}, "must be relative"),
        ({"a/../../b": {"mode": 33152}}, "must be relative"),
        ({"a//b": {"mode": 33152}}, "must be relative"),
        ({"": {"mode": 33152}}, "must be relative"),
        ({"d": {"mode": 16893, "data": "x"}}, "data: a directory has none"),
        ({"l": {"mode": 41471}}, "must be the target"),
        ({"a": {"mode": 33152, "data": 1, "encoding": "utf-8"}}, "must be a string with encoding"),
        ({"a": {"mode": 33152, "data": "a", "encoding": "base64"}}, "is not base64"),
        ({"a": {"mode": 33152, "data": "x", "encoding": "rot13"}}, "encoding: must be"),
        ({"a": {"mode": 33152, "data": "x", "encoding": "utf-8", "size": 2}}, "size: is 2, but data has 1 bytes"),
        ({"a": {"mode": 33152, "size": -1}}, "size: must be"),
        ({"a": {"mode": 33152, "mtime": "x"}}, "mtime: must be"),
        ({"a": {"mode": 33152, "encoding": "blobvec", "data": "x"}}, "must be an array"),
        ({"a": {"mode": 33152, "encoding": "blobvec", "data": [[0, 1]]}}, r"data\[0\]: must be"),
        ({"a": {"mode": 33152, "encoding": "blobvec", "size": 3, "data": [[2, 2, "x"]]}}, "ends at 4"),
    ],
)
def test_errors_name_the_field(obj: object, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        list(archive.read(obj))


def test_entries_from_disk_survive(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hällo\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\x80\x00")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("text")
    files = {name: archive.entry_from_path(str(tmp_path / name)) for name in ("text", "binary", "dir", "link")}
    found = {file.path: file for file in archive.read(files)}
    assert found["text"].data.decode() == "hällo\n"
    assert found["binary"].data == b"\x80\x00"
    assert (found["dir"].kind, found["link"].target) == ("directory", "text")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ArchiveError, match="neither"):
        archive.entry_from_path(str(tmp_path / "fifo"))


@given(st.text(max_size=20) | st.binary(max_size=20))
def test_content_survives_a_round_trip(content: Any) -> None:
    try:
        expected = content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError:
        return
    assert one({"f": archive.entry(content)}).data == expected


_value = (
    st.none() | st.integers(-1, 5) | st.text(max_size=4) | st.lists(st.integers() | st.text(max_size=2), max_size=3)
)


@given(
    st.dictionaries(
        st.text(alphabet="a./", max_size=4),
        st.fixed_dictionaries(
            {"mode": st.sampled_from([33152, 16893, 41471, 0, "x"])},
            optional={
                "data": _value | st.lists(_value, max_size=2),
                "size": _value,
                "mtime": _value,
                "encoding": st.sampled_from(["utf-8", "base64", "blobvec"]) | _value,
            },
        ),
        max_size=2,
    )
)
@settings(max_examples=200)
def test_any_object_is_an_archive_or_an_error(obj: Dict[str, Any]) -> None:
    try:
        found = list(archive.read(obj))
    except ArchiveError:
        return
    assert [file.path for file in found] == list(obj)
