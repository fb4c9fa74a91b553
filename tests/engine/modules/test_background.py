"""The thread for what waits for the disk: in order, one at a time, errors handed back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from headrace.engine.broker.answers import RpcError
from headrace.engine.modules.background import Background


def test_work_is_done_in_order_in_one_other_thread_and_handed_back_on_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        background = Background(loop.call_soon_threadsafe, "test")
        done: list[Any] = []
        threads: set[int] = set()

        def work(number: int) -> int:
            threads.add(threading.get_ident())
            if number == 2:
                raise OSError(28, "full")
            return number

        def taken(result: Any, error: BaseException | None) -> None:
            assert threading.get_ident() == threading.main_thread().ident
            done.append(result if error is None else type(error))

        for number in range(4):
            background.submit(lambda number=number: work(number), taken)  # type: ignore[misc]
        await background.close()
        assert done == [0, 1, OSError, 3]
        background.submit(lambda: 4, taken)
        await asyncio.sleep(0)
        assert done == [0, 1, OSError, 3, RpcError]
        assert len(threads) == 1 and threading.get_ident() not in threads

    asyncio.run(main())
