"""Keeping a server process on one core.

The threads of a process take turns under the interpreter's lock, so a second core does little for them. But whenever
the turn passes to a thread on another core, that core is woken up and finds its caches cold, about thirty times per
request (benchmarks/load.md). On one core the same requests take two thirds of the processor time.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

LARGE_CATALOG = 200_000
"""Slates of so many items are chosen for milliseconds outside the lock, which other cores can do at the same time."""
CLAIM = "slatewise-core-{core}-of-{user}"
"""The name of a file, where temporary files go, that is locked by the process that has taken a core, until it ends."""


def available_cores() -> frozenset[int]:
    """Return the cores that this process may run on; none where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


ALL_CORES = available_cores()
"""What this process could use when it started."""


def pin_to_core() -> int | None:
    """Keep all threads of this process, and those they start, on a core that no other server has taken.

    Return the core; None, and nothing changes, if there is only one, or if others have taken all of them.
    """
    core = claim_core(ALL_CORES) if len(ALL_CORES) > 1 else None
    if core is not None:
        with suppress(OSError):  # a thread has ended, or the system does not allow it
            for thread in Path("/proc/self/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
    return core


def claim_core(cores: frozenset[int]) -> int | None:
    """Return one of the cores that no other server of this user has claimed; None if there is none left."""
    return next((core for core in SystemRandom().sample(sorted(cores), len(cores)) if _claim(core)), None)


def _claim(core: int) -> bool:
    """Lock the file of a core until this process ends; return whether nobody else has, and it could be opened."""
    file = Path(tempfile.gettempdir()) / CLAIM.format(core=core, user=os.geteuid())
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return False
    return True


def unpin(pid: int) -> None:
    """Let a process that this one has started, or one of its threads, run on all cores again."""
    if len(ALL_CORES) > 1:
        with suppress(OSError):
            os.sched_setaffinity(pid, ALL_CORES)
