"""`flux.core.inner`: of the C bindings only `ffi.NULL`, which programs pass as no handle, no jobspec or no callback."""

from __future__ import annotations

from types import SimpleNamespace

ffi = SimpleNamespace(NULL=None)
