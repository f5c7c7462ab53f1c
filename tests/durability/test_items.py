"""Items that were acknowledged survive kill -9; two workers offer the same within a second, and learn together."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.store import Store, open_store
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


def react(place: Place, numbers: range) -> None:
    """Show slates and send feedback, on a new connection each, so that either worker gets it."""
    for number in numbers:
        with Caller(place) as caller:
            slate = caller.ask("POST", "/v1/slates", {"user": f"user {number}", "k": 5})
            assert slate.status == 201
        with Caller(place) as caller:
            items = [item["id"] for item in slate.body["items"]]
            event = {"slate_id": slate.body["slate_id"], "clicked": items[: number % 3], "seen": 5}
            assert caller.ask("POST", "/v1/feedback", event).status == 200


def seen_items(store: Store) -> float:
    """Return how many items were seen, as far as workers have learned it."""
    return sum(rate.seen for rate in store.read(lambda transaction: transaction.rates()).values())


def rates_of(place: Place, item: int) -> set[float]:
    """Return the rates of an item on several connections, so that both workers answer."""
    found = set()
    for _ in range(12):
        with Caller(place) as caller:
            found.add(caller.ask("GET", f"/v1/items/{item}").body["rate"]["value"])
    return found


def test_what_two_workers_learn_about_items_adds_up(place: Place, postgres_server: Server, tell: Tell) -> None:
    url, n_slates = emptied(postgres_server), 60
    service = start_by_command(place, "--store", url, "--workers", "2")
    try:
        parts = [range(start, n_slates, 4) for start in range(4)]
        with closing(open_store(url)) as store, ThreadPoolExecutor(4) as threads:
            began = time.monotonic()
            for done in [threads.submit(react, place, part) for part in parts]:
                done.result()
            while seen_items(store) < 5 * n_slates:
                assert time.monotonic() < began + 60.0
                time.sleep(0.05)
            learned = store.read(lambda transaction: transaction.rates())
            item = next(iter(learned))
            assert isinstance(item, int)
            while len(rates_of(place, item)) > 1:
                assert time.monotonic() < began + 60.0
        with Recommender(Catalog.load(place.catalog), store=url) as recommender:
            recommender.rebuild_rates()
            logged = recommender.store.read(lambda transaction: transaction.rates())
    finally:
        service.stop()
    for known, rate in logged.items():
        assert vars(rate) == pytest.approx(vars(learned[known]), abs=1e-9)
    tell(f"two workers: {n_slates} slates taught the same rates of {len(learned)} items on both")
