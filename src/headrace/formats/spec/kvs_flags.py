"""Flags of KVS lookups, watches and transactions, with flux-core's values."""

from __future__ import annotations

# Flags of a lookup.
READDIR = 1
READLINK = 2
TREEOBJ = 16
# Additional flags of a watch.
WATCH = 4
WAITCREATE = 8
WATCH_FULL = 64
WATCH_UNIQ = 128
WATCH_APPEND = 256
STREAM = 512
WATCH_INITIAL_SENTINEL = 1024
# Flags of a commit.
NO_MERGE = 1
SYNC = 4
# Flags of an operation.
APPEND = 32
