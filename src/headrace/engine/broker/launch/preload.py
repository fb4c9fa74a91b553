"""Import of the brokers' modules before the forks, so that brokers share the memory and the imports."""

from __future__ import annotations

import gc


def preload(links: bool) -> None:
    """Import the modules that all brokers need, so that the forks share the memory and the time.

    The leader loads other modules that it needs, while this process forks the followers.
    """
    from headrace.engine.broker import bare_imports
    from headrace.engine.process.garbage import collect_rarely

    collect_rarely()
    bare_imports.load_small()
    bare_imports.load_asyncio()
    import asyncio

    from headrace.engine.broker import broker as _broker  # noqa: F401 - loaded before the fork
    from headrace.engine.broker.discovery import discover_before_fork
    from headrace.engine.broker.launch import launch as _launch  # noqa: F401 - loaded before the fork
    from headrace.engine.broker.module.host import FOLLOWER_MODULES
    from headrace.engine.broker.module.search import import_leaders_parts, import_service
    from headrace.formats.spec import duration

    if links:
        bare_imports.load_zmq()
        from headrace.engine.broker.tbon import parent as _parent  # noqa: F401 - loaded before the fork
    else:
        # The only broker is the leader, and reads R. Importing this in the fork would copy the memory pages it is put
        # into.
        import_leaders_parts()
    for name in FOLLOWER_MODULES:
        import_service(name)
    # The first run of code fills caches. Run here, so that their pages stay shared.
    asyncio.new_event_loop().close()
    duration.parse("1s")
    discover_before_fork()
    # A garbage collection in a child would write to, and so copy, every page that the child inherits. Garbage of the
    # parent is frozen too: collecting it first would take longer than starting the agent.
    gc.freeze()
