"""`flux start`: an instance in this process, or `--test-size=N` brokers on this machine, around a command."""

from __future__ import annotations

import os
import sys

from headrace.cli.errors import CommandError
from headrace.cli.quick_arguments import QuickParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Dict, List, Union

    from headrace.cli.arguments import Parser

PREFIX = "flux-start: "


def _full_parser() -> Parser:
    from headrace.cli.arguments import BrokerParser

    return BrokerParser("start")


def broker_options(parser: Union[Parser, QuickParser]) -> None:
    """The options that `flux start` and `flux broker` share."""
    parser.add_argument(
        "-S",
        "--setattr",
        action="append",
        default=[],
        metavar="ATTR=VAL",
        help="Start brokers with this value of an attribute",
    )
    parser.add_argument(
        "-c", "--config-path", metavar="PATH", help="Configure the brokers from a TOML file or a folder of them"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VAL", help="Set configuration KEY (or read file, or TOML)"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="Say what is started (twice: more)")


def attributes(settings: List[str]) -> Dict[str, str]:
    """-S options as a table. Raises CommandError."""
    out = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name:
            raise CommandError(f"-S {setting}: write ATTR=VAL")
        if name == "tbon.fanout":
            # The name it had before there were other shapes; the Flux Operator still writes it.
            name, value = "tbon.topo", f"kary:{value}"
        elif name == "broker.rc2_none" and not equals:
            value = "1"
        elif name == "cron.directory":
            # Every cluster that the Flux Operator starts has it; there is no cron here that would look into it.
            continue
        out[name] = value
    return out


def scripts_of_environment() -> Dict[str, str]:
    """FLUX_RC1_PATH and FLUX_RC3_PATH as attributes. Empty is a value: no script."""
    names = {"broker.rc1_path": "FLUX_RC1_PATH", "broker.rc3_path": "FLUX_RC3_PATH"}
    return {attribute: os.environ[name] for attribute, name in names.items() if name in os.environ}


def _parser() -> QuickParser:
    parser = QuickParser(_full_parser)
    broker_options(parser)
    parser.add_argument("-s", "--test-size", type=int, metavar="N", help="Start a test instance of N brokers")
    parser.add_argument("--test-hosts", metavar="HOSTLIST", help="Give the test brokers these host names")
    parser.add_argument("--test-rundir", metavar="PATH", help="Use PATH as the instance's run directory")
    parser.add_argument("-o", "--broker-opts", action="append", default=[], metavar="OPTS", help="Add broker options")
    parser.add_argument("-X", "--noexec", action="store_true", help="Start nothing (with -v: say what would be)")
    parser.add_argument("-r", "--recovery", metavar="STATEDIR", help="Look into an instance's state: run nothing on it")
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="The initial program (default: a shell)")
    return parser


def main(argv: List[str]) -> int:
    options = _parser().parse_args(_joined_broker_opts(argv))
    verbose = _take_broker_opts(options)

    # No more than that: see launch_many.
    from headrace.broker import bare_imports

    bare_imports.load_small()
    from headrace.broker import capacity, config, launch_options
    from headrace.spec.hostlist import Hostlist

    if options.test_size is not None and options.test_size < 1:
        raise CommandError("--test-size argument must be >= 1")
    if options.test_size is None and (options.test_hosts or options.test_rundir):
        raise CommandError("--test-hosts and --test-rundir need --test-size")
    if options.recovery is not None:
        _recover(options)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.verbose:
        _show(options, command)
    if options.noexec:
        return 0
    refused = capacity.refusal(options.test_size or 1)
    if refused:
        raise CommandError(refused if options.test_size is None else f"--test-size: {refused}")
    path = options.config_path or os.environ.get("FLUX_CONF_DIR")
    try:
        launching = launch_options.LaunchOptions(
            size=options.test_size or 0,
            attrs={
                **scripts_of_environment(),
                **({"config.path": path} if path else {}),
                **attributes(options.setattr),
            },
            config=config.from_options(path, options.conf),
            config_path=os.path.abspath(path) if path else "",
            command=command,
            hosts=list(Hostlist.parse(options.test_hosts)) if options.test_hosts else [],
            rundir=options.test_rundir or "",
            verbose=verbose,
        )
        if options.test_size is not None:
            from headrace.broker import launch_many

            return launch_many.start_many(launching)
        bare_imports.load_asyncio()
        from headrace.broker import launch

        return launch.start_here(launching)
    except (launch_options.LaunchError, config.ConfigError) as exc:
        raise broker_error(str(exc)) from None


def _take_broker_opts(options: Namespace) -> int:
    """Add what `--broker-opts` holds, a comma list of the broker's own options, to the others.

    How often its `-v` is there is returned: that of `flux start` itself is another option.
    """
    words = [word for text in options.broker_opts for word in text.split(",") if word]
    if not words:
        return 0
    from headrace.cli.arguments import BrokerParser

    parser = BrokerParser("broker")
    broker_options(parser)
    given = parser.parse_args(words)
    options.setattr += given.setattr
    options.conf += given.conf
    options.config_path = given.config_path or options.config_path
    return int(given.verbose)


def _recover(options: Namespace) -> None:
    """`--recovery=STATEDIR`: one broker with the state of an earlier instance, whose resources stay offline."""
    if not os.path.isdir(options.recovery):
        raise CommandError(f"--recovery: {options.recovery}: give the state directory of an instance")
    if not any(os.path.exists(os.path.join(options.recovery, name)) for name in ("jobs", "kvs.sqlite")):
        raise CommandError(f"--recovery: {options.recovery}: holds no state of an instance")
    if options.test_size not in (None, 1):
        raise CommandError("--recovery starts one broker: it cannot be used with --test-size > 1")
    options.test_size = 1
    options.setattr += [f"statedir={options.recovery}", "broker.recovery-mode=1"]


def _show(options: Namespace, command: List[str]) -> None:
    """Print the command line of each broker that is started."""
    words = ["flux", "broker", *(f"--setattr={setting}" for setting in options.setattr)]
    if options.config_path:
        words.append(f"--config-path={options.config_path}")
    words += [f"--conf={text}" for text in options.conf]
    for rank in range(options.test_size or 1):
        line = " ".join([*words, *command] if rank == 0 else words)
        sys.stderr.write(f"flux-start: {line}\n" if options.test_size is None else f"flux-start: {rank}: {line}\n")


def broker_error(text: str) -> CommandError:
    # Real Flux's broker, not its start command, is what refuses these; users and tests look for its name.
    return CommandError(f"flux-broker: {text}", 1, bare=True)


_TAKE_A_WORD = ("-S", "-c", "-s", "-r", "--setattr", "--config-path", "--conf", "--test-size", "--recovery")


def _joined_broker_opts(argv: List[str]) -> List[str]:
    """`-o -v` as `--broker-opts=-v`: argparse takes no value that begins with a dash, and these all do. `--verbose=N`
    as so many `-v`: it counts them."""
    out: List[str] = []
    words = iter(argv)
    for word in words:
        if word in ("-o", "--broker-opts"):
            out.append(f"--broker-opts={next(words, '')}")
        elif word.startswith("--verbose=") and word[len("--verbose=") :].isdigit():
            out += ["-v"] * int(word[len("--verbose=") :])
        elif word == "--" or not word.startswith("-"):
            # The initial program and its own options.
            return [*out, word, *words]
        else:
            out.append(word)
            if word in _TAKE_A_WORD or word in ("--test-hosts", "--test-rundir"):
                out += [value for value in (next(words, None),) if value is not None]
    return out
