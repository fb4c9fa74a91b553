"""Events of standard I/O logs."""

from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import stdio
from headrace.formats.spec.stdio import Data, StdioError


@pytest.mark.parametrize(
    ("context", "recorded"),
    [
        (stdio.data("stdout", "2", b"node0\n"), {"stream": "stdout", "rank": "2", "data": "node0\n"}),
        (stdio.data("stdin", "all", eof=True), {"stream": "stdin", "rank": "all", "eof": True}),
        (
            stdio.data("stdout", "0", b"\xff\n", eof=True),
            {"stream": "stdout", "rank": "0", "data": "/wo=", "encoding": "base64", "eof": True},
        ),
        (stdio.data("stdout", "0", b"x" * 5000), {"stream": "stdout", "rank": "0", "data": "x", "repeat": 5000}),
        (stdio.redirect("stdout", "0-1", "f"), {"stream": "stdout", "rank": "0-1", "path": "f"}),
        (stdio.redirect("stdout", "0"), {"stream": "stdout", "rank": "0"}),
        (
            stdio.log(3, "bad", rank=0, file="x.c", line=7),
            {"level": 3, "message": "bad", "rank": 0, "file": "x.c", "line": 7},
        ),
        (
            stdio.header({"stdout": 2, "stderr": 2}),
            {
                "version": 1,
                "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
                "count": {"stdout": 2, "stderr": 2},
                "options": {},
            },
        ),
    ],
)
def test_contexts_are_as_recorded(context: Dict[str, Any], recorded: Dict[str, Any]) -> None:
    assert context == recorded


def test_base64_is_decoded_and_an_end_may_be_text() -> None:
    context = {"stream": "stdout", "rank": "31", "data": "bWVlcAo=", "encoding": "BASE64", "eof": "true"}
    assert stdio.decode_data(context) == Data("stdout", "31", b"meep\n", True)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (None, "must be an object"),
        ({"stream": "stdout"}, "stream and rank must be strings"),
        ({"stream": "stdout", "rank": "0", "data": 1}, "data.data: must be a string"),
        ({"stream": "stdout", "rank": "0", "eof": 3}, "data.eof: must be"),
        ({"stream": "stdout", "rank": "0", "data": "a", "encoding": "base64"}, "data.data: is not base64"),
        ({"stream": "stdout", "rank": "0", "data": "x", "encoding": "rot13"}, "data.encoding: must be"),
        ({"stream": "stdout", "rank": "0", "data": "x", "repeat": 1 << 40}, "data.repeat: must be"),
        ({"stream": "stdout", "rank": "0", "data": "x", "repeat": -1}, "data.repeat: must be"),
    ],
)
def test_wrong_data_is_refused(context: object, message: str) -> None:
    with pytest.raises(StdioError, match=message):
        stdio.decode_data(context)


def test_a_data_event_says_something() -> None:
    with pytest.raises(StdioError, match="has data, eof, or both"):
        stdio.data("stdout", "0", b"")


@given(st.binary(min_size=1, max_size=40) | st.integers(1, 3000).map(lambda n: b"\x00" * n), st.booleans())
def test_bytes_survive_a_round_trip(content: bytes, eof: bool) -> None:
    assert stdio.decode_data(stdio.data("stderr", "0", content, eof)) == Data("stderr", "0", content, eof)


_value = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats()


@given(
    st.dictionaries(st.sampled_from(["stream", "rank", "data", "eof", "encoding", "repeat"]), _value, max_size=6),
)
def test_any_object_is_data_or_an_error(context: Dict[str, Any]) -> None:
    try:
        found = stdio.decode_data({"stream": "stdout", "rank": "0", **context})
    except StdioError:
        return
    assert found.data is None or isinstance(found.data, bytes)
