"""Who asks for what: people who get slates, click items one by one, and close the slate with the last click."""

import json
from collections import deque

from slatewise.bench.load.connection import Answer, post

SLATE_SIZE = 10


class Crowd:
    """People in turn; each comes for `visits` slates and then makes room for somebody new.

    Slates give `events` feedbacks each, on average: clicks on one item each, the last of them final.
    """

    def __init__(self, host: str, name: str, people: int = 1_000, visits: int = 1_000_000, events: float = 2) -> None:
        self.host, self.name, self.people, self.visits, self.events = host, name, people, visits, events
        self.asked = self.taken = 0
        self.pending: deque[tuple[str, int, bool]] = deque()

    def ask(self) -> bytes:
        """Return the next request for a slate."""
        turn, place = divmod(self.asked, self.people)
        self.asked += 1
        user = f"{self.name}-{place}-{turn // self.visits}"
        return post(self.host, "/v1/slates", json.dumps({"user": user, "k": SLATE_SIZE}).encode())

    def took(self, answer: Answer) -> None:
        """Remember a slate, to answer it later."""
        if answer.is_good:
            slate = json.loads(answer.body)
            count = int((self.taken + 1) * self.events) - int(self.taken * self.events)
            self.taken += 1
            items = [item["id"] for item in slate["items"][:count]]
            self.pending += [(slate["slate_id"], item, item == items[-1]) for item in items]

    def answer(self) -> bytes | None:
        """Return the next feedback; None if no slate waits for one."""
        if not self.pending:
            return None
        slate_id, item, final = self.pending.popleft()
        event = {"slate_id": slate_id, "clicked": [item], "event_id": f"{slate_id}-{item}", "final": final}
        return post(self.host, "/v1/feedback", json.dumps(event).encode())


def ignore(_: Answer) -> None:
    """Take no notice of what an answer says."""
