"""From the recommender's threads back to the event loop."""

import asyncio
import threading
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def result(future: Future[Result]) -> Result:
    """Wait for a future; like asyncio.wrap_future, whose generality every request would pay for."""
    if not future.done():
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        awaited = loop.create_future()

        def wake(_: Future[Result]) -> None:
            if threading.get_ident() == here:
                _finish(awaited)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_finish, awaited)

        future.add_done_callback(wake)
        try:
            await awaited
        except asyncio.CancelledError:
            future.cancel()
            raise
    return future.result()


def _finish(awaited: asyncio.Future[None]) -> None:
    if not awaited.done():
        awaited.set_result(None)
