"""Training on a schedule: in a process of its own with low priority, judged by the gate, and kept in a history.

The child is `slatewise train --store … --gate`, which puts a version of the catalog in use in one step, so killing it
leaves nothing half done. A lock that the child inherits lets one training run at a time, whatever the number of
workers, and even if the server that started it is gone: then the child ends when it next writes to its closed pipe.
"""

import asyncio
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from slatewise.catalog.model_files import MANIFEST
from slatewise.files import write_whole
from slatewise.service.cpu_affinity import unpin
from slatewise.service.settings import Settings

HISTORY, LOCK = "retrainings.json", "retraining.lock"
KEPT = 100
LOWEST_PRIORITY = 19
RUNNING, ACCEPTED, REFUSED, FAILED, INTERRUPTED = "running", "accepted", "refused", "failed", "interrupted"
LARGEST_MESSAGE = 2_000


@dataclass(frozen=True)
class TrainingRecord:
    """One training: when, what came of it (running, accepted, refused, failed or interrupted), and in words why.

    `version` is the version of the catalog that was written, `gate` the figures of the gate.
    """

    started_at: float
    outcome: str
    finished_at: float | None = None
    version: str | None = None
    words: tuple[str, ...] = ()
    gate: dict[str, Any] | None = None


def read_history(directory: Path) -> list[TrainingRecord]:
    """Return the latest trainings, the newest first; one that no process is at work on was interrupted."""
    try:
        rows = json.loads((directory / HISTORY).read_bytes())
        records = [TrainingRecord(**{**row, "words": tuple(row["words"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    if records and records[0].outcome == RUNNING:
        with training_lock(directory) as descriptor:
            records[0] = records[0] if descriptor is None else replace(records[0], outcome=INTERRUPTED)
    left = (replace(record, outcome=INTERRUPTED) if record.outcome == RUNNING else record for record in records[1:])
    return [*records[:1], *left]


class Retraining:
    """Trains the catalog of a service whenever it is due."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = settings.catalog

    def is_due(self, now: float) -> bool:
        """Return whether the last training, or the last change of the catalog, is long enough ago."""
        with suppress(OSError):
            latest = (self._directory / MANIFEST).stat().st_mtime
            records = read_history(self._directory)
            latest = max(latest, records[0].started_at) if records else latest
            return now >= latest + (self._settings.retrain_every or float("inf"))
        return False

    async def run_if_due(self) -> TrainingRecord | None:
        """Train if it is due and nobody else does; return what came of it, None if there was nothing to do."""
        if not self.is_due(time.time()):
            return None
        with training_lock(self._directory) as descriptor:
            if descriptor is None or not self.is_due(time.time()):
                return None
            record = TrainingRecord(time.time(), RUNNING)
            self._note(record)
            finished = replace(await self._train(record, descriptor), finished_at=time.time())
            self._note(finished)
            return finished

    async def _train(self, record: TrainingRecord, lock: int) -> TrainingRecord:
        child = await asyncio.create_subprocess_exec(
            *self.command(),
            env={**os.environ, **self._environment()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(lock,),
        )
        try:
            unpin(child.pid)
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, LOWEST_PRIORITY)
            output, errors = await child.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                child.kill()
            self._note(replace(record, outcome=INTERRUPTED, finished_at=time.time()))
            raise
        return _outcome(record, child.returncode, output, errors)

    def command(self) -> list[str]:
        """Return the command that trains, with what the settings say of it."""
        settings = self._settings
        words = [sys.executable, "-m", "slatewise", "train", "--out", str(settings.catalog), "--gate", "--json"]
        for file in settings.retrain_interactions:
            words += ["--interactions", str(file)]
        if settings.retrain_half_life is not None:
            words += ["--half-life", str(settings.retrain_half_life)]
        for name in settings.policies:
            words += ["--policy", settings.policy_of(name)]
        return words

    def _environment(self) -> dict[str, str]:
        """Return the settings that decide how a log is learned from; the store's URL may hold a password."""
        settings = self._settings
        given = {name: getattr(settings, name) for name in ("attention", "skip_weight", "half_life", "repeat_after")}
        texts = {f"SLATEWISE_{name.upper()}": str(value) for name, value in given.items() if value is not None}
        secret = settings.store.get_secret_value()
        return {**texts, "SLATEWISE_EVENTS": json.dumps(settings.events), "SLATEWISE_TRAIN_STORE": secret}

    def _note(self, record: TrainingRecord) -> None:
        """Put a training at the head of the history, in place of the same one."""
        try:
            rows = json.loads((self._directory / HISTORY).read_bytes())
        except (OSError, ValueError):
            rows = []
        others = [row for row in rows if row.get("started_at") != record.started_at]
        content = json.dumps([asdict(record), *others][:KEPT], indent=1).encode()
        write_whole(self._directory / HISTORY, [content])


def _outcome(record: TrainingRecord, code: int | None, output: bytes, errors: bytes) -> TrainingRecord:
    """Return what came of a training by what the child wrote and how it ended."""
    try:
        result = json.loads(output)
        outcome = ACCEPTED if result["promoted"] else REFUSED
        return replace(
            record, outcome=outcome, version=result["version"], words=tuple(result["words"]), gate=result["gate"]
        )
    except (ValueError, KeyError, TypeError):
        lines = errors.decode(errors="replace").strip().splitlines()
        why = lines[-1][:LARGEST_MESSAGE] if lines else ""
        return replace(record, outcome=FAILED, words=(why or f"the training ended with code {code}",))


@contextmanager
def training_lock(directory: Path) -> Iterator[int | None]:
    """Yield the descriptor of the lock, which a child may inherit; None if another training has it."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor if is_free(descriptor) else None
    finally:
        os.close(descriptor)


def is_free(descriptor: int) -> bool:
    """Take a lock unless another process has it; return whether that worked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
