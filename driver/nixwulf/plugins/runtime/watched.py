"""A load on servers under the clocks of their run, which end it when nothing comes any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from nixwulf.core.metric import Metric
from nixwulf.plugins.runtime.openai import Endpoint
from nixwulf.plugins.runtime.request_load import LoadTarget
from nixwulf.plugins.runtime.run import Clocks, RunFailure

_CHECK_S = 0.1
# Streams of a server that dies end first; its end is known this much later at the latest.
_DEATH_S = 2.0


async def watched(
    endpoints: Sequence[Endpoint], load: Callable[[Sequence[LoadTarget]], Awaitable[list[Metric]]]
) -> list[Metric]:
    """What a load on some servers measures, with the clocks beside it.

    Raises:
        RunFailure: a server ended, or a clock ran out.
        StreamError: an answer is not whole.
    """
    async with AsyncExitStack() as stack:
        seen, servers = [], []
        for endpoint in endpoints:
            clocks = Clocks(endpoint.run, endpoint.server)
            client = await stack.enter_async_context(endpoint.async_client())
            target = LoadTarget(
                client,
                endpoint.model,
                clocks.on_event,
                endpoint.answers_as,
                foreign=endpoint.server is None,
            )
            servers.append(target)
            seen.append((endpoint, servers[-1], clocks))
        watching = asyncio.create_task(_watch(seen))
        loading = asyncio.ensure_future(load(servers))
        try:
            await asyncio.wait({watching, loading}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and loading.exception():
                await asyncio.wait({watching}, timeout=_DEATH_S)
            if watching.done():
                watching.result()
            return await loading
        finally:
            watching.cancel()
            loading.cancel()
            await asyncio.gather(watching, loading, return_exceptions=True)


async def _watch(seen: Sequence[tuple[Endpoint, LoadTarget, Clocks]]) -> None:
    """Raises RunFailure when a server ends or a clock runs out, else goes on."""
    while True:
        await asyncio.sleep(_CHECK_S)
        for endpoint, server, clocks in seen:
            several = len(seen) > 1
            if several and not server.busy:
                clocks.on_event()  # a replica that has no request is silent, and does not hang
            try:
                endpoint.require_running()
                # In a thread, because it may ask the nodes for signs of life.
                await asyncio.to_thread(clocks.check)
            except RunFailure as failure:
                where = f"Node {endpoint.run.head.node.name!r}: " if several else ""
                raise RunFailure(failure.outcome, where + failure.reason) from None
