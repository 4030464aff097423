"""The writer thread: everything that flushes goes through it, one thread a process, so that a slow disk makes an
agent slow to write, not deaf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@cache
def writer() -> ThreadPoolExecutor:
    """The thread of this process."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="mesh-writer")


async def in_writer(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function on this process' writer thread."""
    return await asyncio.get_running_loop().run_in_executor(writer(), partial(function, *args, **kwargs))
