from __future__ import annotations

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command, ExactCommand

COMMAND = Command(
    "flux-thing",
    "[OPTIONS] NAME",
    "Do a thing",
    (("v", "verbose", "", "Say more"), ("c", "count", "N", "How many"), ("L", "color", "[WHEN]", "Colour")),
)


def test_options_and_operands_may_be_mixed():
    options = COMMAND.parse(["a", "-vv", "b", "--count=3", "-c", "4"])
    assert options.operands == ["a", "b"]
    assert options.count("verbose") == 2
    assert options.get_list("count") == ["3", "4"]
    assert options.get_int("count", 0) == 4


def test_short_options_bundle_with_their_argument():
    options = COMMAND.parse(["-vc5"])
    assert options.has("verbose")
    assert options.get("count") == "5"


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("17", 17), ("3k", 3072), ("3K", 3072), ("2M", 2 << 20), ("1G", 1 << 30)]
)
def test_a_size_has_a_unit_or_is_in_bytes(text, size):
    assert COMMAND.parse(["-c", text]).get_size("count", 5) == size


def test_a_size_that_is_none_is_refused():
    assert COMMAND.parse([]).get_size("count", 5) == 5
    for text in ("K", "-1", "1.5M", "3 K", "٣"):
        with pytest.raises(CommandError, match='Option "count" requires a size'):
            COMMAND.parse([f"--count={text}"]).get_size("count", 5)


def test_rest_is_left_alone_when_it_belongs_to_another_command():
    assert COMMAND.parse(["-v", "sh", "-c", "x"], stop_early=True).operands == ["sh", "-c", "x"]
    assert COMMAND.parse(["--", "-v"]).operands == ["-v"]


def test_long_option_may_be_short_while_it_is_unique():
    assert COMMAND.parse(["--verb"]).has("verbose")
    with pytest.raises(CommandError, match="unrecognized option '--co'"):
        COMMAND.parse(["--co", "1"])


def test_a_command_that_is_no_c_program_takes_whole_options_only():
    command = ExactCommand("flux-thing", "", "", COMMAND.options)
    assert command.parse(["--verbose", "-vc5"]).count("verbose") == 2
    with pytest.raises(CommandError, match="unrecognized option '--verb'"):
        command.parse(["--verb"])


def test_optional_argument_needs_an_equals_sign():
    options = COMMAND.parse(["--color", "x"])
    assert options.get("color", "unset") == ""
    assert options.operands == ["x"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-x"], "flux-thing: unrecognized option '-x'\nTry `flux-thing --help' for more information."),
        (["--count"], "flux-thing: '--count' missing argument\nTry `flux-thing --help' for more information."),
    ],
)
def test_error_is_worded_as_the_c_commands_do(argv, text):
    with pytest.raises(CommandError) as caught:
        COMMAND.parse(argv)
    assert caught.value.text == text
    assert caught.value.status == 1


def test_help_goes_to_stderr_with_status_zero(capsys):
    with pytest.raises(CommandError) as caught:
        COMMAND.parse(["--help"])
    assert caught.value.status == 0
    assert capsys.readouterr().err == (
        "Usage: flux-thing [OPTIONS] NAME\n"
        "Do a thing\n"
        "  -h, --help             Print this text and end\n"
        "  -v, --verbose          Say more\n"
        "  -c, --count=N          How many\n"
        "  -L, --color[=WHEN]     Colour\n"
    )


def test_wrong_number_of_operands_shows_the_usage(capsys):
    with pytest.raises(CommandError):
        COMMAND.parse([]).need(1, 1)
    assert capsys.readouterr().err.startswith("Usage: flux-thing")
