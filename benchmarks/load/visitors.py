"""Who asks for what: visitors who get slates, click items one by one, and close the slate with the last click."""

import json
from collections import deque

from benchmarks.load.connection import Response, post

SLATE_SIZE = 10


class Visitors:
    """Users in turn; each comes for `visits` slates and is then replaced by a new one.

    Slates get `events` feedback events each, on average: clicks on one item each, the last of them final. With
    `ignored` = 1 every second slate gets none, and the others twice as many; with 2 it is two of three.
    """

    def __init__(
        self,
        host: str,
        name: str,
        number: int = 1_000,
        visits: int = 1_000_000,
        events: float = 2,
        *,
        ignored: int = 0,
    ) -> None:
        self.host, self.name, self.number, self.visits = host, name, number, visits
        self.events, self.ignored = events, ignored
        self.requested = self.received = 0
        self.pending: deque[tuple[str, int, bool]] = deque()

    def next_slate(self) -> bytes:
        """Return the next request for a slate."""
        turn, visitor = divmod(self.requested, self.number)
        self.requested += 1
        user = f"{self.name}-{visitor}-{turn // self.visits}"
        return post(self.host, "/v1/slates", json.dumps({"user": user, "k": SLATE_SIZE}).encode())

    def receive(self, response: Response) -> None:
        """Remember a slate, to click on it later."""
        if response.is_ok:
            slate = json.loads(response.body)
            items = [item["id"] for item in slate["items"][: self._next_count()]]
            self.pending += [(slate["slate_id"], item, item == items[-1]) for item in items]

    def _next_count(self) -> int:
        """Return how many feedback events the next slate gets; over many slates they add up."""
        turn, self.received = self.received, self.received + 1
        answered, is_ignored = divmod(turn, self.ignored + 1)
        events = self.events * (self.ignored + 1)
        return 0 if is_ignored else int((answered + 1) * events) - int(answered * events)

    def next_feedback(self) -> bytes | None:
        """Return the next feedback event; None if no slate is left to click on."""
        if not self.pending:
            return None
        slate_id, item, final = self.pending.popleft()
        event = {"slate_id": slate_id, "clicked": [item], "event_id": f"{slate_id}-{item}", "final": final}
        return post(self.host, "/v1/feedback", json.dumps(event).encode())

    def skip_feedback(self, leave: int) -> None:
        """Send only the latest few of the feedback events that are due, so that clicks follow their slates sooner."""
        while len(self.pending) > leave:
            self.pending.popleft()


def ignore(_: Response) -> None:
    """Take no notice of a response."""
