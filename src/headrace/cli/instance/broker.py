"""`flux broker`: one broker, booted by whatever launcher started it (PMI, Slurm, a configuration file) or alone."""

from __future__ import annotations

import os
from typing import List

from headrace.cli.common.arguments import BrokerParser
from headrace.cli.instance.start import attributes, broker_error, broker_options

PREFIX = "flux-broker: "


def main(argv: List[str]) -> int:
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
