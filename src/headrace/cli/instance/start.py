"""`flux start` and `flux broker`: start an instance, or one broker of it.

`start` runs an initial program in a new instance, which is this process, or `--test-size=N` brokers on this machine.
`broker` runs one broker of an instance.
"""

from __future__ import annotations

import os
import sys

from headrace.cli.common.errors import CommandError
from headrace.cli.common.quick_arguments import QuickParser
from headrace.cli.instance import broker_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Dict, List, Union

    from headrace.cli.common.arguments import Parser


PREFIX = "flux-{name}: "


def _full_parser() -> Parser:
    from headrace.cli.common.arguments import BrokerParser

    return BrokerParser("start")


def broker_options(parser: Union[Parser, QuickParser]) -> None:
    """Add the options that `flux start` and `flux broker` share."""
    parser.add_argument(
        "-S",
        "--setattr",
        action="append",
        default=[],
        metavar="ATTR=VAL",
        help="Set a broker attribute",
    )
    parser.add_argument(
        "-c", "--config-path", metavar="PATH", help="Read the configuration from a TOML file or a folder of them"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VAL",
        help="Set a configuration key (KEY=VAL may also be a file, or TOML)",
    )
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="Print the commands that are started (twice: more)"
    )


def attributes(settings: List[str]) -> Dict[str, str]:
    """The attributes of -S options, by name. Raises CommandError."""
    out = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name:
            raise CommandError(f"-S {setting}: write ATTR=VAL")
        if name == "tbon.fanout":
            # The attribute's name before other topologies were added; the Flux Operator still uses it.
            name, value = "tbon.topo", f"kary:{value}"
        elif name == "broker.rc2_none" and not equals:
            value = "1"
        out[name] = value
    return out


def scripts_of_environment() -> Dict[str, str]:
    """FLUX_RC1_PATH and FLUX_RC3_PATH as attributes. An empty variable means no script."""
    names = {"broker.rc1_path": "FLUX_RC1_PATH", "broker.rc3_path": "FLUX_RC3_PATH"}
    return {attribute: os.environ[name] for attribute, name in names.items() if name in os.environ}


def _parser() -> QuickParser:
    parser = QuickParser(_full_parser)
    broker_options(parser)
    parser.add_argument("-s", "--test-size", type=int, metavar="N", help="Start a test instance of N brokers")
    parser.add_argument("--test-hosts", metavar="HOSTLIST", help="Give the test brokers these host names")
    parser.add_argument("--test-rundir", metavar="PATH", help="Use PATH as the instance's run directory")
    parser.add_argument("--test-rundir-cleanup", action="store_true", help="Remove that directory at the end")
    parser.add_argument(
        "--test-exit-mode", metavar="any|leader", help="Stop all brokers after any broker, or the leader, has exited"
    )
    parser.add_argument("--test-exit-timeout", metavar="FSD", help="Kill the brokers that have not exited after FSD")
    parser.add_argument("--test-start-mode", metavar="all|leader", help="Start all brokers (default), or only rank 0")
    parser.add_argument(
        "--test-pmi-clique",
        metavar="single|per-broker|none|TASKMAP",
        help="Make brokers appear to be on the same node in PMI",
    )
    parser.add_argument("--sysconfig", action="store_true", help="Read the configuration of the system instance")
    parser.add_argument(
        "--wrap", action="append", default=[], metavar="ARGS,...", help="Run brokers under this command"
    )
    parser.add_argument("-o", "--broker-opts", action="append", default=[], metavar="OPTS", help="Add broker options")
    parser.add_argument("-X", "--noexec", action="store_true", help="Start nothing (with -v: only print the commands)")
    parser.add_argument(
        "-r",
        "--recovery",
        metavar="STATEDIR",
        help="Start one broker on the state of an instance, without running jobs",
    )
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="The initial program (default: a shell)")
    return parser


# Options --test-NAME that need --test-size.
_OF_TESTS = ("hosts", "rundir", "rundir_cleanup", "exit_mode", "exit_timeout", "start_mode", "pmi_clique")


def _start(argv: List[str]) -> int:
    line, words = broker_words.split(argv)
    options = _parser().parse_args(line)
    given = list(options.command)
    verbose = _take_broker_opts(options)
    # Broker options before the command are also passed to a broker that is another program.
    words += [word for word in given[: len(given) - len(options.command)] if word != "--"]

    # Load only the small modules here; engine/broker/launch/many.py explains why.
    from headrace.engine.broker import bare_imports

    bare_imports.load_small()
    from headrace.engine.broker.launch import capacity

    _check_test_options(options)
    if options.recovery is not None:
        words += _recover(options)
    if options.sysconfig:
        options.config_path = options.config_path or _system_configuration()
        words.append(f"--config-path={options.config_path}")
    broker, is_theirs = broker_words.program()
    wrapper = [word for text in options.wrap for word in text.split(",") if word]
    broker_argv = [*wrapper, *broker, *words]
    if options.verbose:
        _show(options, broker_argv, options.command)
    if options.noexec:
        return 0
    if options.test_size is None and (wrapper or is_theirs):
        sys.stderr.flush()
        os.execvp(broker_argv[0], [*broker_argv, *options.command])
    refused = capacity.refusal(1 if options.test_start_mode == "leader" else options.test_size or 1)
    if refused:
        raise CommandError(refused if options.test_size is None else f"--test-size: {refused}")
    return _launch(options, verbose, broker_argv, bool(wrapper) or is_theirs)


def _launch(options: Namespace, verbose: int, broker_argv: List[str], runs_other_program: bool) -> int:
    """Run the broker in this process, or start the brokers of a test instance. Raises CommandError."""
    from headrace.engine.broker import bare_imports
    from headrace.engine.broker.launch import options as launch_options
    from headrace.formats.config import files as config_files
    from headrace.formats.spec.hostlist import Hostlist

    path = options.config_path or os.environ.get("FLUX_CONF_DIR")
    scripts = scripts_of_environment()
    attrs = {**scripts, **({"config.path": path} if path else {}), **attributes(options.setattr)}
    if options.test_rundir_cleanup:
        attrs["rundir-cleanup"] = "1"
    try:
        launching = launch_options.LaunchOptions(
            size=options.test_size or 0,
            attrs=attrs,
            config=config_files.from_options(path, options.conf),
            config_path=os.path.abspath(path) if path else "",
            command=options.command,
            hosts=list(Hostlist.parse(options.test_hosts)) if options.test_hosts else [],
            rundir=options.test_rundir or "",
            verbose=verbose,
            exit_mode=options.test_exit_mode or "",
            exit_timeout=options.test_exit_timeout,
            start_mode=options.test_start_mode or "all",
            clique=options.test_pmi_clique or "single",
            broker_argv=[*broker_argv, *(f"--setattr={name}={value}" for name, value in scripts.items())],
            runs_other_program=runs_other_program,
            start_verbose=options.verbose,
        )
        if options.test_size is not None:
            from headrace.engine.broker.launch import many

            return many.start_many(launching)
        bare_imports.load_asyncio()
        from headrace.engine.broker.launch import launch

        return launch.start_here(launching)
    except launch_options.RundirError as exc:
        raise CommandError(str(exc)) from None
    except (launch_options.LaunchError, config_files.ConfigError) as exc:
        raise broker_error(str(exc)) from None


def _check_test_options(options: Namespace) -> None:
    """Check the options of a test instance and convert the exit timeout to seconds. Raises CommandError."""
    if options.test_size is not None and options.test_size < 1:
        raise CommandError("--test-size argument must be >= 1")
    given = [f"--test-{name.replace('_', '-')}" for name in _OF_TESTS if getattr(options, f"test_{name}")]
    if options.test_size is None and given:
        raise CommandError(f"{' and '.join(given)} need{'s' * (len(given) == 1)} --test-size")
    if options.test_rundir_cleanup and not options.test_rundir:
        raise CommandError("--test-rundir-cleanup needs --test-rundir")
    for name, known in (("exit", ("any", "leader")), ("start", ("all", "leader"))):
        mode = getattr(options, f"test_{name}_mode")
        if mode is not None and mode not in known:
            raise CommandError(f"unknown --test-{name}-mode: {mode}: use {' or '.join(known)}")
    if options.test_exit_timeout is not None:
        from headrace.formats.spec import duration

        try:
            options.test_exit_timeout = duration.parse(options.test_exit_timeout)
        except duration.DurationError as exc:
            raise CommandError(f"--test-exit-timeout: {exc}") from None
    if options.test_pmi_clique not in (None, "single", "per-broker", "none"):
        from headrace.formats.spec.taskmap import TaskMap

        try:
            placed = TaskMap.decode(options.test_pmi_clique).ntasks
        except ValueError as exc:
            raise CommandError(f"--test-pmi-clique: {exc}") from None
        if placed != options.test_size:
            raise CommandError(f"--test-pmi-clique: the task map has {placed} brokers, not {options.test_size}")


def _system_configuration() -> str:
    from headrace.wire.client.installation import CONFDIR

    return os.path.join(CONFDIR, "system", "conf.d")


def _take_broker_opts(options: Namespace) -> int:
    """Parse `--broker-opts` and the command as the broker does, and merge the options into `options`.

    Returns the number of `-v` in it, which is separate from the `-v` of `flux start` itself.
    """
    if options.command[:1] == ["--"]:
        del options.command[0]
    words = [word for text in options.broker_opts for word in text.split(",") if word]
    if not words and (not options.command or options.command[0][:1] != "-"):
        return 0
    from headrace.cli.common.arguments import BrokerParser

    parser = BrokerParser("broker")
    broker_options(parser)
    parser.add_argument("command", nargs="...")
    given = parser.parse_args([*words, *options.command])
    options.setattr += given.setattr
    options.conf += given.conf
    options.config_path = given.config_path or options.config_path
    options.command = given.command[1:] if given.command[:1] == ["--"] else given.command
    return int(given.verbose)


def _recover(options: Namespace) -> List[str]:
    """Set the options of `--recovery=STATEDIR` and return the broker's options for it.

    It starts one broker with the state of an earlier instance, whose resources stay offline. Raises CommandError.
    """
    if not os.path.isdir(options.recovery):
        raise CommandError(f"--recovery: {options.recovery}: not the state directory of an instance")
    if not any(os.path.exists(os.path.join(options.recovery, name)) for name in ("jobs", "kvs.sqlite")):
        raise CommandError(f"--recovery: {options.recovery}: has no state of an instance")
    if options.test_size not in (None, 1):
        raise CommandError("--recovery starts one broker: it cannot be used with --test-size > 1")
    options.test_size = 1
    settings = [f"statedir={options.recovery}", "broker.recovery-mode=1"]
    options.setattr += settings
    return [f"--setattr={setting}" for setting in settings]


def _show(options: Namespace, broker_argv: List[str], command: List[str]) -> None:
    """Print the command line of each broker."""
    if options.test_size is None:
        sys.stderr.write(f"flux-start: {' '.join([*broker_argv, *options.command])}\n")
        return
    rundir = options.test_rundir or attributes(options.setattr).get("rundir")
    rundir = rundir or os.path.join(os.environ.get("TMPDIR") or "/tmp", "flux-XXXXXX")
    for rank in range(1 if options.test_start_mode == "leader" else options.test_size):
        words = [*broker_argv, f"--setattr=rundir={rundir}", *(command if rank == 0 else [])]
        sys.stderr.write(f"flux-start: {rank}: {' '.join(words)}\n")


def broker_error(text: str) -> CommandError:
    # In Flux these errors come from the broker and not from `flux start`; users and tests look for its name.
    return CommandError(f"flux-broker: {text}", 1, bare=True)


def _broker(argv: List[str]) -> int:
    from headrace.cli.common.arguments import BrokerParser

    parser = BrokerParser("broker")
    broker_options(parser)
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="The initial program (default: a shell)")
    options = parser.parse_args(argv)

    from headrace.engine.broker import bare_imports

    bare_imports.load_small()
    bare_imports.load_asyncio()
    from headrace.engine.broker.launch import launch
    from headrace.engine.broker.launch import options as launch_options
    from headrace.formats.config import files as config_files

    path = options.config_path or os.environ.get("FLUX_CONF_DIR")
    try:
        return launch.start_here(
            launch_options.LaunchOptions(
                attrs={**({"config.path": path} if path else {}), **attributes(options.setattr)},
                config=config_files.from_options(path, options.conf),
                config_path=os.path.abspath(path) if path else "",
                verbose=options.verbose,
                command=options.command[1:] if options.command[:1] == ["--"] else options.command,
            )
        )
    except (launch_options.LaunchError, config_files.ConfigError) as exc:
        raise broker_error(str(exc)) from None


def main(argv: List[str], name: str) -> int:
    return _broker(argv) if name == "broker" else _start(argv)
