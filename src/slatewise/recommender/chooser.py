"""`python -m slatewise.recommender.chooser DIRECTORY SEED POLICY…`: chooses slates for a service, on another core.

It says what catalogue it has and then answers questions from its input, in order, until the input ends. It keeps
nothing of anybody. A question that it cannot answer gets an empty answer; whoever asked then chooses for itself.
"""

import contextlib
import gc
import os
import sys
from pathlib import Path

from slatewise.catalog import Catalog, CatalogError
from slatewise.recommender import wire
from slatewise.recommender.choosing import Request, choose
from slatewise.recommender.people import Person
from slatewise.recommender.spaces import Spaces
from slatewise.recommender.views import RequestError


def main() -> None:
    """Answer until there are no more questions."""
    try:
        spaces, seed = Spaces(Catalog.load(Path(sys.argv[1]))), int(sys.argv[2])
        for name in sys.argv[3:]:
            spaces.space(name)
    except (CatalogError, RequestError, OSError):
        sys.exit(1)  # the service that started this reads the same directory, and says what is wrong with it
    source = sys.stdin.buffer
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        _say(spaces.likeness.encode())
        while (head := source.read(wire.SIZE.size)) and (question := source.read(wire.SIZE.unpack(head)[0])):
            _say(answer(spaces, question, seed))


def answer(spaces: Spaces, content: bytes, seed: int) -> bytes:
    """Learn from closed slates and choose the next; empty if that fails, and whoever asked will find out why."""
    try:
        space = spaces.space(wire.policy_of(content))
        asked = wire.Question.from_bytes(content, space.start)
        state = asked.state
        for numbers, clicks in asked.closed:
            state = space.learn(state, numbers, clicks)
        person = Person("", space, state, asked.n_slates, asked.shown, asked.liked, since=())
        request = Request(asked.user, asked.k, diversity=asked.diversity)
        return wire.answer_bytes(choose(spaces, person, request, seed), state)
    except Exception:  # noqa: BLE001
        return b""


def _say(content: bytes) -> None:
    message = wire.SIZE.pack(len(content)) + content
    while message:
        message = message[os.write(sys.stdout.fileno(), message) :]


if __name__ == "__main__":
    main()
