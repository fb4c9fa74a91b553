"""`flux start`: an instance in this process, or `--test-size=N` brokers on this machine, around a command."""

from __future__ import annotations

import os
import sys
from typing import Dict, List

from headrace.cli.arguments import Parser
from headrace.cli.errors import CommandError

PREFIX = "flux-start: "


def broker_options(parser: Parser) -> None:
    """The options that `flux start` and `flux broker` share."""
    parser.add_argument("-S", "--setattr", action="append", default=[], metavar="ATTR=VAL", help="Set broker attribute")
    parser.add_argument("-c", "--config-path", metavar="PATH", help="Read TOML configuration from file or folder PATH")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VAL", help="Set configuration KEY (or read file, or TOML)"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="Be annoyingly informative by degrees")


def attributes(settings: List[str]) -> Dict[str, str]:
    """-S options as a table. Raises CommandError."""
    out = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if not name:
            raise CommandError(f"-S {setting}: write ATTR=VAL")
        out[name] = value
    return out


def main(argv: List[str]) -> int:
    parser = Parser("flux start", usage="flux start [OPTIONS] [COMMAND...]")
    broker_options(parser)
    parser.add_argument("-s", "--test-size", type=int, metavar="N", help="Start a test instance of N brokers")
    parser.add_argument("--test-hosts", metavar="HOSTLIST", help="Give the test brokers these host names")
    parser.add_argument("--test-rundir", metavar="PATH", help="Use PATH as the instance's run directory")
    parser.add_argument("-o", "--broker-opts", action="append", default=[], metavar="OPTS", help="Add broker options")
    parser.add_argument("-X", "--noexec", action="store_true", help="Say what would be started, start nothing")
    parser.add_argument("--recovery", nargs="?", const="", metavar="DIR", help="Start on a state folder, alone")
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="The initial program (default: a shell)")
    options = parser.parse_args(_split_broker_opts(argv))

    from headrace.broker import config, launch
    from headrace.spec.hostlist import Hostlist

    attrs = attributes(options.setattr)
    if options.recovery:
        attrs["statedir"] = options.recovery
    if options.test_size is not None and options.test_size < 1:
        raise CommandError("--test-size argument must be >= 1")
    if options.test_size is None and (options.test_hosts or options.test_rundir):
        raise CommandError("--test-hosts and --test-rundir need --test-size")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.noexec or options.verbose > 1:
        print(f"flux-start: size={options.test_size or 'from launcher'} command={command}", file=sys.stderr)
        if options.noexec:
            return 0
    try:
        launching = launch.LaunchOptions(
            size=options.test_size or 0,
            attrs=attrs,
            config=config.from_options(options.config_path, options.conf),
            config_path=os.path.abspath(options.config_path) if options.config_path else "",
            command=command,
            hosts=list(Hostlist.parse(options.test_hosts)) if options.test_hosts else [],
            rundir=options.test_rundir or "",
            verbose=options.verbose,
        )
        if options.test_size is not None:
            return launch.start_many(launching)
        return launch.start_here(launching)
    except (launch.LaunchError, config.ConfigError) as exc:
        raise broker_error(str(exc)) from None


def broker_error(text: str) -> CommandError:
    # Real Flux's broker, not its start command, is what refuses these; users and tests look for its name.
    return CommandError(f"flux-broker: {text}", 1, bare=True)


def _split_broker_opts(argv: List[str]) -> List[str]:
    """`-o,-Sa=b,-v` and `--broker-opts=...` take a comma list of broker options: put them in place."""
    out: List[str] = []
    for index, arg in enumerate(argv):
        if arg.startswith("-o,"):
            out.extend(arg[3:].split(","))
        elif arg.startswith("-o-"):
            out.extend(arg[2:].split(","))
        elif arg.startswith("--broker-opts="):
            out.extend(part for part in arg[len("--broker-opts=") :].split(",") if part)
        elif arg == "--" or not arg.startswith("-"):
            previous = argv[index - 1] if index else ""
            if previous in (
                "-S",
                "-c",
                "-s",
                "--setattr",
                "--config-path",
                "--conf",
                "--test-size",
                "--test-hosts",
            ) or (previous == "--test-rundir"):
                out.append(arg)
                continue
            out.extend(argv[index:])
            break
        else:
            out.append(arg)
    return out
