from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli import main
from headrace.cli.main import ABSENT, COMMANDS


def test_unknown_command_is_named_with_the_nearest_ones(flux):
    outcome = flux("getatr")
    assert outcome.rc == 1
    assert outcome.stderr.startswith("flux: 'getatr' is not a flux command.  See 'flux --help'\n")
    assert "\tgetattr\n" in outcome.stderr


def test_help_lists_every_command(flux):
    outcome = flux("--help")
    assert outcome.rc == 0
    for name in COMMANDS:
        assert f"   {name} " in outcome.stdout


@pytest.mark.parametrize("name", ["run", "env", "mini", "getattr"])
def test_help_of_a_command_is_what_its_help_option_shows(flux, name):
    outcome, same = flux("help", name), flux(name, "--help")
    assert "sage: " in outcome.stdout + outcome.stderr
    assert (outcome.rc, outcome.stdout, outcome.stderr) == (0, same.stdout, same.stderr)


def test_help_of_a_subcommand_is_its_own(flux):
    assert flux("help", "job", "attach").stderr.startswith("Usage: flux-job attach ")
    assert flux("help", "resource", "list").stdout.startswith("usage: flux-resource list ")


def test_help_is_the_manual_page_where_there_is_one(flux, tmp_path):
    man = tmp_path / "man"
    lines = (f"echo $@ >>{tmp_path}/asked", "case $* in '-w flux-R') exit 0;; flux-R) echo the page; exit 3;; esac")
    man.write_text("\n".join(("#!/bin/sh", *lines, "exit 16\n")))
    man.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    page = flux("help", "R", PATH=path)
    assert (page.stdout, page.rc) == ("the page\n", 3)
    assert flux("help", "jobs", PATH=path).stdout.startswith("usage: flux-jobs ")
    assert (tmp_path / "asked").read_text().splitlines() == ["-w flux-R", "flux-R", "-w flux-jobs"]
    flux("help", "R", PATH=path, FLUX_IGNORE_NO_DOCS="1")
    assert len((tmp_path / "asked").read_text().splitlines()) == 3


def test_help_of_no_command_is_an_error(flux):
    assert flux("help", "nosuch").stderr.startswith("flux: 'nosuch' is not a flux command.")


@pytest.mark.parametrize("name", ABSENT)
def test_command_that_only_flux_has_is_called_so_and_is_in_the_manual(flux, name):
    outcome = flux(name)
    assert (outcome.rc, outcome.stderr) == (1, f"flux: '{name}' is a Flux command that Headrace does not have yet\n")
    manual = Path(__file__).parent.parent.parent / "docs" / "user" / "options.md"
    assert re.search(rf"`(flux )?{name}`", manual.read_text(encoding="utf-8").partition("## Options")[0])


def test_nothing_to_do_shows_the_usage(flux):
    outcome = flux()
    assert outcome.rc == 1
    assert outcome.stderr.startswith("Usage: flux [OPTIONS] COMMAND ARGS\n")


def test_the_name_of_the_program_is_in_its_errors(capfd):
    assert [main.headrace([*words]) for words in ((), ("--nosuch",), ("getatr",))] == [1, 1, 1]
    told = capfd.readouterr().err
    assert told.startswith("Usage: headrace [OPTIONS] COMMAND ARGS\n")
    assert "headrace: unrecognized option '--nosuch'\nTry `headrace --help' for" in told
    assert "headrace: 'getatr' is not a headrace command.  See 'headrace --help'\n" in told
    assert not re.search(r"\bflux\b", told)


def test_program_named_after_flux_is_a_command(flux, tmp_path):
    script = tmp_path / "flux-hello"
    script.write_text('#!/bin/sh\necho "hello $1"\n')
    script.chmod(0o755)
    outcome = flux("hello", "you", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert outcome.stdout == "hello you\n"


def test_python_program_named_after_flux_needs_no_interpreter_line(flux, tmp_path):
    script = tmp_path / "flux-hello.py"
    script.write_text("import flux, sys; print('hello', *sys.argv[1:])")
    script.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert flux("hello", "you", PATH=path).stdout == "hello you\n"
    assert "\thello\n" in flux("helo", PATH=path).stderr


def test_verbose_driver_shows_search_paths_and_what_it_runs(flux):
    outcome = flux("-v", "env", "true")
    assert "\nFLUX_EXEC_PATH=" in outcome.stdout
    assert outcome.stderr == "flux: trying to run installation from headrace.cli\n"


def test_program_given_by_its_path_is_run(flux, tmp_path):
    (tmp_path / "here").write_text("#!/bin/sh\necho $1; exit 3\n")
    (tmp_path / "here").chmod(0o755)
    outcome = flux("./here", "it")
    assert (outcome.stdout, outcome.rc) == ("it\n", 3)
    assert flux("./nowhere").stderr == "flux: ./nowhere: No such file or directory\n"


def test_packages_may_add_their_commands_to_the_help(flux, tmp_path):
    (tmp_path / "x.json").write_text('[{"category": "mine", "command": "do", "description": "does it"}]')
    shown = flux("help", FLUX_CMDHELP_PATTERN="*.json").stdout
    assert shown.endswith("\nCommon commands from flux-mine:\n   do                 does it\n")


def test_an_entry_of_the_help_that_names_no_command_is_passed_over(flux, tmp_path):
    (tmp_path / "x.json").write_text('[{"name": "mine"}, {"category": "mine", "command": "do", "description": "it"}]')
    shown = flux("help", FLUX_CMDHELP_PATTERN="*.json")
    assert (shown.rc, shown.stdout.endswith("flux-mine:\n   do                 it\n")) == (0, True)
    titled = (
        '[{"name": "mine", "description": "Of the house:"}, {"category": "mine", "command": "do", "description": ""}]'
    )
    (tmp_path / "x.json").write_text(titled)
    shown = flux("help", FLUX_CMDHELP_PATTERN="*.json")
    assert shown.stdout.endswith("\n\nOf the house:\n   do                 \n")


def test_version_option_is_the_version_command(flux):
    assert flux("-V").stdout == flux("version").stdout
    assert flux("-V").stdout.startswith("commands:")


def test_version_of_headrace_is_its_own(capsys):
    assert main.headrace(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_env_runs_a_command_with_bindings_in_reach(flux):
    outcome = flux("env", "sh", "-c", 'echo "$PYTHONPATH"')
    assert outcome.stdout.split(":")[0].strip().endswith(os.path.join("wire", "compat", "python"))
    assert flux("env", "--", "true").rc == 0
    assert flux("env", "nosuchprogram").rc == 127


def test_closed_pipe_ends_a_command_quietly(flux, tmp_path):
    code = "from headrace.cli.main import flux; import sys; sys.exit(flux(['--help']))"
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{code}" | true'], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("command", [["getattr", "rank"], ["ping", "broker"], ["kvs", "get", "a"]])
def test_quick_commands_import_no_argument_parser(command):
    code = (
        "import sys, json; from headrace.cli.main import flux; flux(sys.argv[1:]); "
        "heavy = ('argparse', 'socket', 'asyncio', 'subprocess', 'zmq', 'msgspec', 'typing', 'sysconfig'); "
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    env = {**os.environ, "FLUX_URI": "local:///nosuch"}
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env=env, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("command", ["run", "submit", "jobs", "job", "cancel", "queue", "resource"])
def test_commands_import_nothing_outside_the_standard_library(command):
    code = (
        "import sys, json; from headrace.cli.main import flux\n"
        "try: flux(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print(json.dumps([name for name in ('zmq', 'msgspec', 'yaml', 'rich', 'asyncio') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_broker_elsewhere_is_reached_through_ssh_and_a_relay(flux, playback, tmp_path):
    broker = playback("33")
    relay = tmp_path / "flux"
    relay.write_text(f"#!{sys.executable}\nimport sys\nfrom headrace.cli.main import flux\nsys.exit(flux())\n")
    ssh = tmp_path / "ssh"
    # Stands for ssh: leaves the host out and runs the rest here.
    ssh.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    for script in (relay, ssh):
        script.chmod(0o755)
    uri = broker.uri.replace("local://", "ssh://elsewhere")
    outcome = flux("getattr", "size", uri=uri, FLUX_SSH=str(ssh), FLUX_SSH_RCMD=str(relay))
    assert (outcome.stdout, outcome.stderr) == ("3\n", "")


@pytest.mark.parametrize(
    "argv",
    [
        ["submit", "--queue=", "true"],
        ["batch", "-n1", "-q", ""],
        ["jobs", "-q", "a,,b"],
        ["queue", "stop", ""],
        ["queue", "list", "-q", "a,"],
        ["resource", "list", "--queue="],
    ],
)
def test_an_empty_name_of_a_queue_is_refused(flux, argv):
    outcome = flux(*argv)
    assert outcome.rc == 2
    assert "the name of a queue cannot be empty" in outcome.stderr
