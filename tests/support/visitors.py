"""Clients that take slates and click them for as long as they are let, in threads."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from tests.support.notes import Event, Notes
from tests.support.served import Caller, Place


@dataclass
class Visitor:
    """One client with a few users of its own and one that all clients share."""

    place: Place
    notes: Notes
    users: tuple[str, ...]
    draw: random.Random
    halt: threading.Event = field(default_factory=threading.Event)
    refusals: set[int] = field(default_factory=set)

    def visit(self) -> None:
        """Take slates and click them until told to stop, or until the service is gone."""
        with Caller(self.place) as caller:
            while not self.halt.is_set() and self.take_one(caller):
                pass

    def take_one(self, caller: Caller) -> bool:
        """Take one slate and click it one or two times; say whether everything was answered."""
        user = self.draw.choice(self.users)
        self.notes.ask(user)
        slate = caller.ask("POST", "/v1/slates", {"user": user, "k": 5})
        if slate.status != 201:
            self.refusals.add(slate.status)
            return False
        items = self.notes.take(slate.body)
        for final in self.draw.choice([(True,), (False, True), (False, False), ()]):
            clicked = tuple(self.draw.sample(items, self.draw.randint(0, 2)))
            event = Event(str(uuid4()), user, slate.body["slate_id"], clicked, final)
            if not self.send(caller, event):
                return False
        return True

    def send(self, caller: Caller, event: Event) -> bool:
        """Send an event and remember whether it was acknowledged."""
        self.notes.send(event)
        answer = caller.ask("POST", "/v1/feedback", event.body)
        if answer.status != 200:
            self.refusals.add(answer.status)
            return False
        self.notes.acknowledge(event)
        return True


@contextmanager
def visiting(place: Place, notes: Notes, seed: int, clients: int = 6) -> Iterator[list[Visitor]]:
    """Let clients visit while something else happens; afterwards they stop."""
    halt = threading.Event()
    visitors = [
        Visitor(
            place, notes, (f"{seed}-shared", f"{seed}-{at}-a", f"{seed}-{at}-b"), random.Random(f"{seed} {at}"), halt
        )
        for at in range(clients)
    ]
    threads = [threading.Thread(target=visitor.visit) for visitor in visitors]
    for thread in threads:
        thread.start()
    try:
        yield visitors
    finally:
        halt.set()
        for thread in threads:
            thread.join()
