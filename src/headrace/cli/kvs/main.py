"""`flux kvs SUBCOMMAND`: the table of its subcommands; reading, writing and eventlogs have files of their own."""

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
    "link": ("Make a key that stands for another (a symbolic link)", "write"),
    "readlink": ("Print what symbolic links point to", "read"),
    "mkdir": ("Make empty directories", "write"),
    "copy": ("Copy a key, or a directory with all in it", "write"),
    "move": ("Rename a key, or a directory with all in it", "write"),
    "dropcache": ("Have the KVS forget what it can load again", "namespace"),
    "getroot": ("Print a reference to the whole KVS as it is now", "read"),
    "version": ("Print the number of the last commit", "read"),
    "wait": ("Wait until this broker has seen that commit", "read"),
    "namespace": ("Make, remove and list namespaces", "namespace"),
    "eventlog": ("Append to eventlogs, print them, wait for events", "eventlog"),
}


def main(argv: List[str]) -> int:
    name, rest = dispatch("flux-kvs", argv, _TABLE)
    full = f"headrace.cli.kvs.{_TABLE[name][1]}"
    __import__(full)
    handler = getattr(sys.modules[full], name if name != "dir" else "dir_")
    return int(handler(rest))
