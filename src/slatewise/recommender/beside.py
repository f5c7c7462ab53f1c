"""Slates chosen ahead, in a process beside this one: Python runs on one core, and choosing is half of the work.

A question is sent when a slate is asked for, and the answer taken when its turn to be recorded comes. It counts only if
nothing was written about the person in between; otherwise, and whenever the other process is late, too busy or gone,
the slate is chosen here. So it changes nothing but time.
"""

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from slatewise.policies import State
from slatewise.recommender import wire
from slatewise.recommender.choosing import Chosen, Request
from slatewise.recommender.people import Person

PIPE_BYTES = 1 << 20
SMALL_PIPE_BYTES = 1 << 16
LARGEST_SHARE = 8
"""A question fills at most one part in so many of the pipe, so that several find room."""
PAGE_BYTES = 1 << 12
"""What a message may waste of a pipe, which is made of pages."""
PATIENCE = 2.0
"""Seconds after which an answer is not waited for any more; a process that is slower is given up."""
READ_BYTES = 1 << 18


class Ticket:
    """A question that was sent, for whom as they were known, and the answer once it was read."""

    def __init__(self, chooser: "Chooser", person: Person, size: int) -> None:
        self.chooser, self.person, self.size = chooser, person, size
        self.until = time.monotonic() + PATIENCE
        self.answer: bytes | None = None

    def is_ready(self, seconds: float) -> bool:
        """Wait some time for the answer; say whether it is there, or will not be waited for."""
        return self.chooser.has_answered(self, seconds) or time.monotonic() >= self.until


class Chooser:
    """The process beside, from here: answers come in the order of the questions."""

    def __init__(self, directory: Path, seed: int, policies: Iterable[str]) -> None:
        self.policies = frozenset(policies)
        words = [sys.executable, "-m", "slatewise.recommender.chooser", str(directory), str(seed), *self.policies]
        self.process = subprocess.Popen(  # noqa: S603
            words, bufsize=0, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pipes = [pipe for pipe in (self.process.stdin, self.process.stdout) if pipe is not None]
        self.asking, self.reading = (pipe.fileno() for pipe in self.pipes)
        self.room = min(map(_enlarged, (self.asking, self.reading)))
        self.poll = select.poll()
        self.poll.register(self.reading, select.POLLIN)
        self.likeness = ""
        self.is_lost = False
        self.pending: deque[Ticket] = deque()
        self.unanswered = self.used = 0
        self.received = bytearray()
        self.sending_turn, self.reading_turn = threading.Lock(), threading.Lock()

    def ask(self, likeness: str, person: Person, request: Request) -> Ticket | None:
        """Send a question about a catalogue, without waiting; None if it cannot be asked there, or not now."""
        if self.is_lost or request.is_special or person.space.name not in self.policies or not self._is_ready(likeness):
            return None
        content = _question(person, request).to_bytes()
        ticket = Ticket(self, person, wire.SIZE.size + len(content) + PAGE_BYTES)
        with self.sending_turn:
            if self.is_lost or ticket.size > min(self.room // LARGEST_SHARE, self.room - self.unanswered):
                return None
            self.pending.append(ticket)
            self.unanswered += ticket.size
            return ticket if self._send(wire.SIZE.pack(len(content)) + content) else None

    def has_answered(self, ticket: Ticket, seconds: float) -> bool:
        """Wait some time for an answer; say whether it came, or never will."""
        until = time.monotonic() + seconds
        with self.reading_turn:
            while ticket.answer is None and not self.is_lost and self._read(until - time.monotonic()):
                pass
            return ticket.answer is not None or self.is_lost

    def answer(self, ticket: Ticket) -> tuple[Chosen, State] | None:
        """Wait for an answer as long as patience lasts; None if there is none."""
        if not self.has_answered(ticket, ticket.until - time.monotonic()):
            self._give_up()
        if not ticket.answer:
            return None
        self.used += 1
        return wire.answer_from_bytes(ticket.answer, ticket.person.space)

    def close(self) -> None:
        """End the process; whoever waits for an answer is told that there is none."""
        self._give_up()
        with self.reading_turn, self.sending_turn:
            for pipe in self.pipes:
                pipe.close()
        self.process.wait()

    def _is_ready(self, likeness: str) -> bool:
        """Whether it has this catalogue, as far as it has said; what was not asked for any more is read on the way."""
        if self.likeness == likeness and self.unanswered * 2 < self.room:
            return True
        if self.reading_turn.acquire(blocking=False):
            try:
                while not self.is_lost and self._read(0.0):
                    pass
            finally:
                self.reading_turn.release()
        return self.likeness == likeness

    def _send(self, content: bytes) -> bool:
        """Write to a pipe that has room for all of it."""
        try:
            while content:
                content = content[os.write(self.asking, content) :]
        except OSError:
            self._give_up()
        return not self.is_lost

    def _read(self, seconds: float) -> bool:
        """Wait for bytes and sort them; say whether any came. The end of them is the end of the process."""
        if not self.poll.poll(1000.0 * max(seconds, 0.0)):
            return False
        part = os.read(self.reading, READ_BYTES)
        if not part:
            self._give_up()
        self.received += part
        while len(self.received) >= wire.SIZE.size:
            end = wire.SIZE.size + wire.SIZE.unpack_from(self.received)[0]
            if len(self.received) < end:
                break
            self._take(bytes(self.received[wire.SIZE.size : end]))
            del self.received[:end]
        return bool(part)

    def _take(self, content: bytes) -> None:
        if not self.likeness:
            self.likeness = content.decode()
            return
        with self.sending_turn:
            ticket = self.pending.popleft()
            self.unanswered -= ticket.size
        ticket.answer = content

    def _give_up(self) -> None:
        self.is_lost = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


def _question(person: Person, request: Request) -> wire.Question:
    return wire.Question(
        policy=person.space.name,
        user=request.user,
        k=request.k,
        diversity=request.diversity,
        n_slates=person.n_slates,
        shown=person.shown,
        liked=person.liked,
        closed=[(one.numbers, one.clicks_by_place()) for one in person.since],
        state={name: person.state[name] for name in person.space.start},
    )


def _enlarged(pipe: int) -> int:
    """Make a pipe hold more, where the system lets us; return how many bytes it holds."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return SMALL_PIPE_BYTES
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
