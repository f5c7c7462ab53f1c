"""Keeping a server process on one core.

The threads of a process take turns under the interpreter's lock, so a second core does little for them. But whenever
the turn passes to a thread on another core, that core is woken up and finds its caches cold, about thirty times per
request (benchmarks/load.md). On one core the same requests take two thirds of the processor time.
"""

import os
from contextlib import suppress
from pathlib import Path

LARGE_CATALOG = 200_000
"""Slates of so many items are chosen for milliseconds outside the lock, which other cores can do at the same time."""


def available_cores() -> frozenset[int]:
    """Return the cores that this process may run on; none where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


ALL_CORES = available_cores()
"""What this process could use when it started."""


def pin_to_core(number: int) -> None:
    """Keep all threads of this process, and those they start, on one core; processes with other numbers take others."""
    if len(ALL_CORES) > 1:
        core = sorted(ALL_CORES)[number % len(ALL_CORES)]
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended, or the system does not allow it
                os.sched_setaffinity(int(thread.name), {core})


def unpin(pid: int) -> None:
    """Let a process that this one has started run on all cores again."""
    if len(ALL_CORES) > 1:
        with suppress(OSError):
            os.sched_setaffinity(pid, ALL_CORES)
