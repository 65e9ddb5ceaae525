"""The event loop of servers and of the driver: uvloop's.

Field-notes A9.4 tell of uvloop that a cancelled connect can leave its file descriptor unusable for the rest of the process. So while
requests are made none is cancelled: ``connection`` and ``general`` finish each connection that they begin, and aiohttp's happy eyeballs,
which cancel the slower one, are off.
"""

from __future__ import annotations

import asyncio


def event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; asyncio's own where uvloop is not installed. For ``asyncio.Runner(loop_factory=…)``."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
