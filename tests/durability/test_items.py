"""Items that were acknowledged survive kill -9, and two workers offer the same within a second."""

import random
import threading
import time
from typing import Any

import pytest

from slatewise.store import open_store
from tests.durability.conftest import Tell
from tests.support.postgres import Server
from tests.support.served import Caller, Place, start, start_by_command
from tests.support.store_rows import emptied

pytestmark = pytest.mark.slow

N_ROUNDS = 2
WITHIN = 1.0


def put_until_it_dies(place: Place, acknowledged: dict[int, str], numbers: range) -> None:
    """Put and withdraw one item after the other; note what was acknowledged."""
    with Caller(place) as caller:
        for number in numbers:
            title = f"title {number}"
            item = {"id": number, "title": title, "attributes": {"n": number}}
            if caller.ask("POST", "/v1/items", {"items": [item]}).status != 200:
                return
            acknowledged[number] = title
            if number % 3 == 0 and caller.ask("DELETE", f"/v1/items/{number}").status == 204:
                acknowledged[number] = "withdrawn"


def lost_items(place: Place, acknowledged: dict[int, str]) -> list[int]:
    """Return the acknowledged items that the store does not have as they were."""
    store = open_store(place.store)
    rows = {row.item: row for row in store.read(lambda t: t.items_by_number(0, 100_000))}
    store.close()
    said = {item: row.title if row.available else "withdrawn" for item, row in rows.items()}
    return [number for number, title in acknowledged.items() if said.get(number) not in (title, "withdrawn")]


@pytest.mark.parametrize("way", ["plain", "hasty"])
def test_no_acknowledged_item_is_lost(place: Place, way: str) -> None:
    """The hasty store acknowledges before the commit, which must show."""
    draw, acknowledged, lost = random.Random(0), dict[int, str](), list[int]()
    for number in range(5 if way == "hasty" else N_ROUNDS):
        service = start(place, way)
        numbers = range(10_000 * (number + 1), 10_000 * (number + 2))
        threads = [
            threading.Thread(target=put_until_it_dies, args=(place, acknowledged, numbers[part::4]))
            for part in range(4)
        ]
        for thread in threads:
            thread.start()
        time.sleep(draw.uniform(0.2, 0.5))
        service.kill()
        for thread in threads:
            thread.join()
        lost += lost_items(place, acknowledged)
        if lost and way == "hasty":
            return
    assert acknowledged
    assert (lost == []) == (way == "plain")


def offers(place: Place, item: int) -> set[bool]:
    """Ask for the item on several connections, so that both workers answer."""
    found = set()
    for _ in range(12):
        with Caller(place) as caller:
            body = {"user": "ann", "k": 1, "candidates": [item, 100], "exclude": [100], "preview": True}
            answer = caller.ask("POST", "/v1/slates", body)
            found.add(answer.status == 200)
    return found


def seconds_until(place: Place, item: int, expected: Any) -> float:
    began = time.monotonic()
    while offers(place, item) != expected:
        assert time.monotonic() < began + 30.0
    return time.monotonic() - began


def test_two_workers_offer_the_same_soon(place: Place, postgres_server: Server, tell: Tell) -> None:
    service = start_by_command(place, "--store", emptied(postgres_server), "--workers", "2")
    try:
        with Caller(place) as caller:
            assert caller.ask("PUT", "/v1/items/7", {"title": "new"}).status == 200
            appeared = seconds_until(place, 7, {True})
            assert caller.ask("DELETE", "/v1/items/7").status == 204
            went = seconds_until(place, 7, {False})
    finally:
        service.stop()
    tell(f"two workers: an item appeared after {appeared:.2f} s and was gone after {went:.2f} s (goal {WITHIN:g})")
