"""Arguments that several commands share."""

from __future__ import annotations

import argparse

import pytest

from headrace.cli.common.arguments import Parser, address, port, queues_named, subcommands
from headrace.cli.common.errors import CommandError


def test_a_command_of_several_needs_one_and_names_it_in_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser("flux-x")
    command = subcommands(parser)
    command("go", "Go somewhere", "place").add_argument("-f", "--fast", action="store_true")
    args = parser.parse_args(["go", "-f", "home"])
    assert (args.command, args.place, args.fast) == ("go", "home", True)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "flux-x: error: the following arguments are required: COMMAND" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser.parse_args(["go"])
    assert "usage: flux-x go [-h] [-f] PLACE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--colo=1"], "unrecognized arguments: --colo=1 (did you mean --color?)"),
        (["x", "--fromat", "1"], "unrecognized arguments: --fromat 1 (did you mean --format?)"),
        (["--max"], "unrecognized arguments: --max (did you mean --max-size or --max-time?)"),
        (["--elephant", "-y"], "unrecognized arguments: --elephant -y"),
        (["-y"], "unrecognized arguments: -y"),
        # options of the subcommand that was named count, those of the other do not, nor those that help does not show
        (["go", "--fas"], "unrecognized arguments: --fas (did you mean --fast?)"),
        (["go", "--slo"], "unrecognized arguments: --slo"),
        (["go", "--hid"], "unrecognized arguments: --hid"),
    ],
)
def test_an_option_cut_short_is_refused_with_what_may_have_been_meant(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser("flux-x")
    for option in ("--color", "--format", "--max-size", "--max-time"):
        parser.add_argument(option)
    if words[0] == "go":
        command = subcommands(parser)
        go = command("go", "Go somewhere")
        go.add_argument("-f", "--fast", action="store_true")
        go.add_argument("--hidden", help=argparse.SUPPRESS)
        command("stop", "Stop").add_argument("--slow")
    else:
        parser.add_argument("words", nargs="*")
    for context in ("", "script line 3"):
        parser.context = context
        with pytest.raises(CommandError if context else SystemExit) as caught:
            parser.parse_args(words)
        if context:
            assert str(caught.value) == f"script line 3: {error}"
        else:
            assert caught.value.code == 2
            assert capsys.readouterr().err.splitlines()[-1] == f"flux-x: error: {error}"


def test_short_options_still_bundle() -> None:
    parser = Parser("flux-x")
    parser.add_argument("-v", "--verbose", action="count")
    parser.add_argument("-n", "--number")
    args = parser.parse_args(["-vvn4"])
    assert (args.verbose, args.number) == (2, "4")


def test_queues_are_named_with_commas_and_again_and_must_be_known() -> None:
    assert queues_named(["a,b", "c"], {"a", "b", "c"}) == ["a", "b", "c"]
    with pytest.raises(CommandError, match="No such queue: x"):
        queues_named(["a,x"], ["a"])


def test_ports_and_addresses() -> None:
    assert [port(text) for text in ("0", "4242", "65535")] == [0, 4242, 65535]
    for text in ("65536", "99999", "-1", "", "a", "1.5", "٣"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a port"):
            port(text)
    for text in ("", ":8080", "127.0.0.1:1", "[::1]:0", "example.org:65535"):
        assert address(text) == text
    for text, why in {
        "abc": "'abc' is not HOST:PORT",
        "8080": "is not HOST:PORT",
        "::1": "is not HOST:PORT",
        "::1:80": "is not HOST:PORT",
        "127.0.0.1:99999": "'99999' is not a port",
        "a:": "'' is not a port",
        "a:b": "'b' is not a port",
    }.items():
        with pytest.raises(argparse.ArgumentTypeError, match=why):
            address(text)
