"""`flux kvs SUBCOMMAND`: the table of subcommands; each group of them has its own file."""

from __future__ import annotations

import sys

from headrace.cli.common.getopts import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

PREFIX = "flux-kvs: "

_TABLE = {
    "get": ("Print the values of keys", "read"),
    "put": ("Set keys to values, all in one commit", "write"),
    "dir": ("Print the keys of a directory with their values", "list"),
    "ls": ("Print the names in directories, in columns", "list"),
    "unlink": ("Remove keys, all in one commit", "write"),
    "link": ("Create a symbolic link to a key", "write"),
    "readlink": ("Print the targets of symbolic links", "read"),
    "mkdir": ("Create empty directories", "write"),
    "copy": ("Copy a key or a directory", "write"),
    "move": ("Rename a key or a directory", "write"),
    "dropcache": ("Drop cached data that the KVS can load again", "namespace"),
    "getroot": ("Print the current root reference", "read"),
    "version": ("Print the number of the last commit", "read"),
    "wait": ("Wait until this broker has seen a commit", "read"),
    "namespace": ("Create, remove and list namespaces", "namespace"),
    "eventlog": ("Append to eventlogs, print them, wait for events", "eventlog"),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-kvs", argv, _TABLE)
    full = f"headrace.cli.kvs.{_TABLE[name][1]}"
    __import__(full)
    handler = getattr(sys.modules[full], name if name != "dir" else "dir_")
    return int(handler(rest))
