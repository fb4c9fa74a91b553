"""`flux account COMMAND`: asks the service `accounting`, and prints its answer.

A command is a line in COMMANDS, and its arguments are a table in the file of its subject; only that file is imported.
The parsed arguments are the payload of the request. `create-db` makes the file itself, since the service needs it.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from importlib import import_module

from headrace.cli.account.arguments import access, add_database, add_to
from headrace.cli.common.arguments import Parser
from headrace.cli.common.errors import CommandError
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Dict, List

PREFIX = "flux-account: ERROR: "

# The name of each command, the file of its arguments, and its line in the help.
COMMANDS = {
    "view-user": ("users", "Show a user's rows, one for each bank"),
    "list-users": ("users", "List users in banks"),
    "add-user": ("users", "Add a user to a bank, or make an inactive one active again"),
    "delete-user": ("users", "Make a user in a bank inactive, or delete the row"),
    "edit-user": ("users", "Change a user's limits, shares, queues and projects; -1 resets a value to its default"),
    "edit-all-users": ("users", "Change the same value for all users; -1 resets it to its default"),
    "sync-userids": ("users", "Copy the ids of users to the tables with their usage"),
    "add-bank": ("banks", "Add a bank, or make an inactive one active again"),
    "view-bank": ("banks", "Show a bank, its users, or everything below it"),
    "delete-bank": ("banks", "Make a bank and everything below it inactive, or delete the rows"),
    "edit-bank": ("banks", "Change a bank's shares, parent or priority"),
    "list-banks": ("banks", "List banks"),
    "bank-info": ("banks", "Show shares and usage as parts of the whole"),
    "add-coordinator": ("banks", "Let a user change the users of a bank and what is below it"),
    "delete-coordinator": ("banks", "Take a coordinator's rights in a bank away"),
    "list-coordinators": ("banks", "List the coordinators of banks"),
    "add-queue": ("queues", "Add a queue"),
    "view-queue": ("queues", "Show a queue"),
    "edit-queue": ("queues", "Change a queue's priority and limits; -1 resets a value to its default"),
    "delete-queue": ("queues", "Delete a queue"),
    "list-queues": ("queues", "List queues"),
    "add-project": ("settings", "Add a project"),
    "view-project": ("settings", "Show a project"),
    "delete-project": ("settings", "Delete a project"),
    "list-projects": ("settings", "List projects"),
    "view-factor": ("settings", "Show the weight of a factor of the priority"),
    "edit-factor": ("settings", "Change the weight of a factor of the priority"),
    "list-factors": ("settings", "List the factors of the priority and their weights"),
    "reset-factors": ("settings", "Reset the weights of all factors to their defaults"),
    "add-config": ("settings", "Add a setting"),
    "view-config": ("settings", "Show a setting"),
    "edit-config": (
        "settings",
        "Change settings; another half-life, reset period or decay factor sets all usage to 0",
    ),
    "delete-config": ("settings", "Delete a setting that was added"),
    "list-configs": ("settings", "List settings"),
    "create-db": ("settings", "Create a database"),
    "export-db": ("settings", "Write each table to a CSV file in the current directory"),
    "export-json": ("settings", "Print the data of the plugin mf_priority"),
    "pop-db": ("settings", "Add the rows of a CSV file to a table"),
    "view-job-records": ("jobs", "List jobs that have ended"),
    "jobs": ("jobs", "List a user's active jobs and the terms of their priorities"),
    "show-usage": ("jobs", "Show usage as a bar chart"),
    "view-usage-report": ("jobs", "Add up the usage of jobs by bank, user, time and size"),
    "clear-usage": ("jobs", "Set the usage of banks to 0"),
    "scrub-old-jobs": ("jobs", "Delete records of old jobs"),
    "why": ("jobs", "Explain a job's priority, which limit holds it, and which jobs come before it"),
    "report": ("jobs", "Report usage against shares, usage over time, and waits"),
    "update-usage": ("jobs", "Run flux account-update-usage (deprecated)"),
}

# The options before a command whose values are words of their own.
_WITH_VALUE = ("-p", "--path", "--password-file")


def _parser(chosen: str = "") -> Parser:
    """The parser of the command `chosen`; of all commands for "", and of their names alone for an unknown one."""
    parser = Parser(
        "flux-account",
        description="Manage banks, users and their limits, and show usage and fair share",
        allow_abbrev=True,
    )
    add_database(parser, " for create-db and update-usage")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, (file, text) in COMMANDS.items():
        if chosen in COMMANDS and name != chosen:
            continue
        one = commands.add_parser(name, prog=f"flux-account {name}", help=text, description=text, allow_abbrev=True)
        if chosen in (name, ""):
            add_to(one, import_module(f"headrace.cli.account.{file}").COMMANDS[name])
    return parser


def main(argv: List[str]) -> int:
    before = ["", *argv]
    words = (word for at, word in enumerate(argv) if word in COMMANDS and before[at] not in _WITH_VALUE)
    chosen = next(words, "-")
    args = _parser(chosen).parse_args(argv)
    if args.subcommand == "create-db":
        return _create(args)
    if args.subcommand == "update-usage":
        return _update_usage(args)
    method = args.subcommand.replace("-", "_")
    handle = Handle()
    try:
        answer = handle.rpc(f"accounting.{method}", _payload(args, method)).get()
    except OSError as exc:
        # As flux-accounting prints it, without the errno.
        text = str(exc.strerror)
        if exc.errno == errno.ENOSYS:
            text += ": the accounting service is not running, or has not started yet (see flux dmesg)"
        raise CommandError(text) from None
    text = answer[method]
    if method == "report" and args.html:
        with open(args.html, "w", encoding="utf-8") as file:
            file.write(text)
    elif text:
        print(text)
    return 0


def _payload(args: Namespace, method: str) -> Dict[str, Any]:
    payload = dict(vars(args), func=method)
    del payload["password_file"]
    if method == "bank_info" and not any(payload[key] for key in ("tree", "tree_no_users", "to_root", "user")):
        payload["user"] = _user()
    # The service reads and writes files with another working directory.
    if method == "pop_db" and payload["csv_file"]:
        payload["csv_file"] = os.path.abspath(payload["csv_file"])
    if method == "export_db":
        payload["directory"] = os.getcwd()
    return payload


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise CommandError(f"user id {os.getuid()} has no account: name a user with --user") from None


def _create(args: Namespace) -> int:
    from headrace.engine.accounting import database
    from headrace.storage.database import DatabaseError

    try:
        database.create(
            args.path or database.DEFAULT_PATH,
            args.priority_usage_reset_period or "",
            args.priority_decay_half_life or "",
            args.decay_factor,
            time.time(),
            access(args),
        )
    except (ValueError, DatabaseError) as exc:
        raise CommandError(str(exc)) from None
    return 0


def _update_usage(args: Namespace) -> int:
    from headrace.cli.main import run_command

    sys.stderr.write("flux-account: WARNING: update-usage is deprecated, use flux account-update-usage\n")
    given = (("--path", args.path), ("--password-file", args.password_file))
    return run_command("account-update-usage", [f"{option}={value}" for option, value in given if value])
