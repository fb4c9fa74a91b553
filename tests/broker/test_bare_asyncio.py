"""A broker's asyncio has no TLS until somebody wants it, and then all of it."""

from __future__ import annotations

import subprocess
import sys

_TALK = """
import asyncio, ssl

async def main():
    async def answer(reader, writer):
        writer.write(b"no TLS spoken here\\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=ssl.create_default_context())
    except Exception as exc:
        print(type(exc).__name__)

asyncio.run(main())
"""


def output(code: str) -> str:
    code = f"import sys; sys.path[:0] = {sys.path}\n{code}"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_brokers_load_no_tls_and_hide_none() -> None:
    started = "from headrace.broker import bare_asyncio; bare_asyncio.load(); import headrace.broker.broker\n"
    assert output(started + "print({'ssl', '_ssl'} & set(sys.modules))") == "set()"
    assert output(started + "import ssl; print(ssl.Purpose.SERVER_AUTH.shortname)") == "serverAuth"


def test_tls_is_there_in_full_when_it_is_given_back() -> None:
    code = "from headrace.broker import bare_asyncio\nbare_asyncio.load()\nbare_asyncio.complete()\n" + _TALK
    assert output(code) == output(_TALK) == "SSLError"


def test_nothing_is_taken_from_who_has_it_already() -> None:
    assert (
        output("import asyncio; from headrace.broker import bare_asyncio; bare_asyncio.load()\n" + _TALK) == "SSLError"
    )
