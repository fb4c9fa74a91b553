"""Flags of KVS requests, as flux-core numbers them: of lookups and watches, and of a transaction's operations."""

from __future__ import annotations

# Of a lookup.
READDIR = 1
READLINK = 2
TREEOBJ = 16
# Of a watch, besides.
WATCH = 4
WAITCREATE = 8
WATCH_FULL = 64
WATCH_UNIQ = 128
WATCH_APPEND = 256
STREAM = 512
WATCH_INITIAL_SENTINEL = 1024
# Of a commit.
NO_MERGE = 1
SYNC = 4
# Of an operation.
APPEND = 32
