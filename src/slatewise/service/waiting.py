"""From the recommender's threads back to the event loop."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def result(future: Future[Result]) -> Result:
    """Wait for a future; like asyncio.wrap_future, whose generality every request would pay for."""
    if not future.done():
        loop = asyncio.get_running_loop()
        awaited = loop.create_future()

        def wake(_: Future[Result]) -> None:
            if not loop.is_closed():
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
