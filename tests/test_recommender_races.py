"""Many threads on one user, and drafts overtaken by other writes: nothing is lost, nothing counts twice."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slatewise.recommender import Event, Recommender, RequestError, Slate, UnknownSlateError, state_codec
from slatewise.recommender.profile import learn_everything
from slatewise.recommender.recommend import SlateRequest
from slatewise.store import Store, open_store
from slatewise.store.memory import MemoryTables
from slatewise.store.records import UserRecord
from tests.support.postgres import Server
from tests.support.postgres_kinds import POSTGRES_KINDS, url_of
from tests.support.recommending import (
    Clock,
    InterruptedStore,
    counted,
    folded,
    ids,
    loaded_profile,
    make_catalog,
    restarted,
    served_catalog,
)
from tests.support.store_rows import at_once, emptied

N_THREADS = 6
N_ROUNDS = 5
CATALOG = make_catalog(300)
OTHER_CATALOG = make_catalog(300, seed=3, first=200)


@pytest.fixture(params=["memory", "sqlite", *POSTGRES_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(url_of(request.param, request, tmp_path))
    yield opened
    opened.close()


@dataclass
class Client:
    """Takes slates for one user and clicks on them; keeps what was acknowledged."""

    recommender: Recommender
    draw: random.Random
    slates: list[Slate] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def take_slates(self) -> None:
        for _ in range(N_ROUNDS):
            replaces = self.slates[-1].slate_id if self.slates and self.draw.random() < 0.3 else None
            self.slates.append(self.recommender.recommend("ann", 4, replaces=replaces))
            for slate in self.draw.choices(self.slates, k=2):
                self.send(slate)

    def send(self, slate: Slate) -> None:
        """Send one event twice; a slate that was forgotten is no longer known."""
        event_id = f"{slate.slate_id} {len(self.events)} {self.draw.random()}"
        clicked, final = self.draw.sample(ids(slate), self.draw.randint(0, 2)), self.draw.random() < 0.5
        try:
            for _ in range(2):
                self.recommender.feedback(slate.slate_id, clicked, event_id=event_id, final=final)
            self.events.append(event_id)
        except UnknownSlateError:
            self.slates = [other for other in self.slates if other is not slate]


def clients_of(*recommenders: Recommender) -> list[Client]:
    return [Client(recommenders[number % len(recommenders)], random.Random(number)) for number in range(N_THREADS)]


def inconsistencies(recommender: Recommender, user: str = "ann") -> list[str]:
    """Return what does not fit together: numbers of slates, counts against the log, beliefs against the log."""
    export = recommender.export(user) if user in recommender.store.users() else {"slates": [], "feedback": []}
    problems = [problem for _, problem in recommender.verify() if problem]
    if [slate["number"] for slate in export["slates"]] != list(range(len(export["slates"]))):
        problems.append("the slates are not numbered one after the other")
    if sum(slate["status"] == "open" for slate in export["slates"]) > 1:
        problems.append("more than one slate is open")
    totals = recommender.experiments()[0]
    if (totals.slates, totals.clicks) != counted(recommender, [user]):
        problems.append(f"{totals.slates} slates and {totals.clicks} clicks are counted, not what the log says")
    profile = loaded_profile(recommender, user)
    if state_codec.difference(profile.learned.state, folded(recommender, user, profile.policy)) > 1e-9:
        problems.append("the belief is not the fold of the log")
    if ids(recommender.preview(user, 5)) != ids(restarted(recommender).preview(user, 5)):
        problems.append("what is cached is not what is stored")
    return problems


def lost_or_repeated(recommender: Recommender, clients: list[Client]) -> list[str]:
    """Return the acknowledged slates and events of clients that are not in the log exactly once."""
    export = recommender.export("ann")
    n_slates = Counter(slate["slate_id"] for slate in export["slates"])
    n_events = Counter(event["event_id"] for event in export["feedback"])
    slates = {slate.slate_id for client in clients for slate in client.slates}
    events = {event_id for client in clients for event_id in client.events}
    return [
        *(slate_id for slate_id in slates | n_slates.keys() if (slate_id in slates, n_slates[slate_id]) != (True, 1)),
        *(event_id for event_id in events | n_events.keys() if (event_id in events, n_events[event_id]) != (True, 1)),
    ]


@pytest.mark.parametrize("n_recommenders", [1, 2])
def test_many_threads_on_one_user_lose_nothing(store: Store, n_recommenders: int) -> None:
    """Two recommenders on one store are like two processes: neither knows what the other one has cached."""
    recommenders = [Recommender(CATALOG, store=store) for _ in range(n_recommenders)]
    clients = clients_of(*recommenders)
    at_once([client.take_slates for client in clients])
    for recommender in recommenders:
        assert lost_or_repeated(recommender, clients) == []
        assert inconsistencies(recommender) == []
        assert len(recommender.export("ann")["slates"]) == N_THREADS * N_ROUNDS


def test_slates_feedback_and_forgetting_at_once_leave_no_half_user(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    clients = clients_of(recommender)

    def forget_often() -> None:
        for _ in range(15):
            recommender.forget("ann")
            time.sleep(0.004)

    at_once([*(client.take_slates for client in clients), forget_often])
    assert inconsistencies(recommender) == []
    for client in clients:
        client.take_slates()
    assert inconsistencies(recommender) == []
    recommender.forget("ann")
    assert list(store.users()) == []
    assert recommender.experiments()[0].slates == 0


def test_slates_while_the_catalog_changes_belong_to_the_catalog_they_were_chosen_from(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)

    def swap() -> None:
        for catalog in (OTHER_CATALOG, CATALOG) * 5:
            recommender.use_catalog(catalog)

    clients = clients_of(recommender)
    at_once([*(client.take_slates for client in clients), swap])
    assert lost_or_repeated(recommender, clients) == []
    assert inconsistencies(recommender) == []
    check_catalogs(recommender)


def check_catalogs(recommender: Recommender) -> None:
    """Every slate has only items of the catalog that it names."""
    catalogs = {served_catalog(Recommender(catalog)).digest: catalog for catalog in (CATALOG, OTHER_CATALOG)}
    for slate in recommender.export("ann")["slates"]:
        assert set(slate["items"]) <= set(catalogs[slate["catalog"]].item_ids)


def test_the_same_event_from_many_threads_counts_once(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    slate = recommender.recommend("ann")
    receipts = []
    send = partial(recommender.feedback, slate.slate_id, ids(slate)[:2], event_id="e")
    at_once([lambda: receipts.append(send()) for _ in range(8)])
    assert sorted(receipt.duplicate for receipt in receipts) == [False, *[True] * 7]
    assert inconsistencies(recommender) == []
    assert recommender.experiments()[0].clicks == 2


def test_expiry_and_final_feedback_at_once_close_a_slate_once(store: Store) -> None:
    clock = Clock()
    recommender = Recommender(CATALOG, store=store, clock=clock)
    for _ in range(5):
        slate = recommender.recommend("ann", 5)
        clock.now += 3600.0
        feedback = partial(recommender.feedback, slate.slate_id, ids(slate)[:1])
        at_once([recommender.close_expired, feedback, recommender.close_expired])
        assert inconsistencies(recommender) == []
    assert recommender.experiments()[0].slates == 5


Change = Callable[[Recommender, Slate], Any]
CHANGES: dict[str, Change] = {
    "a click": lambda recommender, slate: recommender.feedback(slate.slate_id, ids(slate)[:1], final=False),
    "final feedback": lambda recommender, slate: recommender.feedback(slate.slate_id, ids(slate)[:1]),
    "another slate": lambda recommender, _: recommender.recommend("ann", 5),
    "the slate is replaced": lambda recommender, slate: recommender.recommend("ann", 5, replaces=slate.slate_id),
    "expiry": lambda recommender, _: recommender.close_expired(),
    "forget": lambda recommender, _: recommender.forget("ann"),
    "rebuild": lambda recommender, _: recommender.rebuild("ann"),
}


def slate_and_expired(recommender: Recommender, clock: Clock) -> Slate:
    """Show a slate that could expire by now."""
    slate = recommender.recommend("ann", 5)
    clock.now += 3600.0
    return slate


def kept(store: Store) -> Any:
    """Everything that is stored about the user."""
    return store.read(lambda t: (t.lock("ann"), t.belief("ann"), t.slates_of("ann"), t.feedback_of("ann"), t.totals()))


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_draft_that_became_stale_is_not_recorded_but_drafted_again(
    store: Store, change: str, elsewhere: bool
) -> None:
    """Whether the change came through the same recommender, or through another one on the store."""
    clock = Clock()
    recommender = Recommender(CATALOG, store=store, clock=clock)
    slate = slate_and_expired(recommender, clock)
    for replaces in (None, slate.slate_id):
        draft = recommender.draft(SlateRequest("ann", 5, replaces=replaces))
        CHANGES[change](restarted(recommender) if elsewhere else recommender, slate)
        before = kept(store)
        assert recommender.record(draft).result() is None
        assert kept(store) == before
        assert inconsistencies(recommender) == []
        recommender.forget("ann")
        slate = slate_and_expired(recommender, clock)


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "rebuild"])
@pytest.mark.parametrize("replaced", [False, True])
def test_recommend_notices_what_happens_while_it_drafts_and_before_it_records(change: str, replaced: bool) -> None:
    clock, store = Clock(), InterruptedStore(open_store("memory://"))
    for interruptions in (store.before_reads, store.before_writes):
        recommender = Recommender(CATALOG, store=store, clock=clock)
        slate = slate_and_expired(recommender, clock)
        interruptions.append(partial(CHANGES[change], recommender, slate))
        shown = recommender.recommend("ann", 5, replaces=slate.slate_id if replaced else None)
        interruptions.clear()
        assert recommender.export("ann")["slates"][-1]["slate_id"] == shown.slate_id
        assert inconsistencies(recommender) == []
        recommender.forget("ann")


def test_a_click_between_drafting_and_recording_keeps_a_slate_from_being_withdrawn() -> None:
    store = InterruptedStore(open_store("memory://"))
    with Recommender(CATALOG, store=store) as recommender:
        for _ in range(2):
            slate = recommender.recommend("ann", 5)
            store.before_writes.append(partial(recommender.feedback, slate.slate_id, ids(slate)[:1], final=False))
            recommender.recommend("ann", 5, replaces=slate.slate_id)
            assert store.before_writes == []
            statuses = {kept["slate_id"]: kept["status"] for kept in recommender.export("ann")["slates"]}
            assert statuses[slate.slate_id] == "closed"
            assert inconsistencies(recommender) == []
        assert recommender.explain("ann").clicks == 2


@pytest.mark.parametrize("change", ["a click", "final feedback", "another slate"])
def test_recording_a_stale_draft_would_lose_something(change: str) -> None:
    """Negative control: a draft that claims to know the latest version."""
    with Recommender(CATALOG) as recommender:
        slate = recommender.recommend("ann", 5)
        draft = recommender.draft(SlateRequest("ann", 5))
        CHANGES[change](recommender, slate)
        version = recommender.store.read(lambda transaction: transaction.lock("ann").version)
        forged = replace(draft, profile=replace(draft.profile, version=version))
        assert recommender.record(forged).result() is not None
        assert inconsistencies(recommender)


def test_a_slate_is_drafted_again_when_its_user_changes_and_in_the_end_in_the_transaction() -> None:
    store = InterruptedStore(open_store("memory://"))
    with Recommender(CATALOG, store=store) as recommender:
        slate = recommender.recommend("ann", 5)
        clicks = [partial(recommender.feedback, slate.slate_id, [item], final=False) for item in ids(slate)]
        store.before_writes += clicks
        recommender.recommend("ann", 5, replaces=slate.slate_id)
        assert store.before_writes == []
        assert recommender.explain("ann").clicks == 5
        assert inconsistencies(recommender) == []
        store.before_writes += [partial(recommender.rebuild, "ann")] * (recommender.max_drafts + 1)
        assert recommender.recommend("ann", 5).number == 2
        assert store.before_writes == []
        assert inconsistencies(recommender) == []


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_slate_chosen_within_the_transaction_is_the_one_of_a_draft(
    store: Store, replaces: bool, is_cached: bool
) -> None:
    recommender = Recommender(CATALOG, store=store)
    slate = recommender.recommend("ann", 5)
    request = SlateRequest("ann", 5, replaces=slate.slate_id if replaces else None)
    preview = recommender.preview_of(request)
    server = recommender if is_cached else restarted(recommender)
    assert server.draft_and_record(request).result().items == preview.items
    assert inconsistencies(server) == []
    with pytest.raises(RequestError):
        server.draft_and_record(SlateRequest("ann", candidates=())).result()


def test_many_threads_choosing_within_the_transaction_lose_nothing(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    recommender.max_drafts = 0
    clients = clients_of(recommender)
    at_once([client.take_slates for client in clients])
    assert lost_or_repeated(recommender, clients) == []
    assert inconsistencies(recommender) == []


def test_a_draft_chosen_from_a_catalog_that_was_replaced_is_not_recorded(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    recommender.recommend("ann", 5)
    draft = recommender.draft(SlateRequest("ann", 5))
    recommender.use_catalog(OTHER_CATALOG)
    assert recommender.record(draft).result() is None
    slate = recommender.recommend("ann", 5)
    assert slate.number == 1
    assert set(ids(slate)) <= set(OTHER_CATALOG.item_ids)
    check_catalogs(recommender)
    assert inconsistencies(recommender) == []


def test_a_catalog_replaced_while_recommend_drafts_serves_the_slate() -> None:
    store = InterruptedStore(open_store("memory://"))
    for interruptions in (store.before_reads, store.before_writes):
        recommender = Recommender(CATALOG, store=store)
        recommender.recommend("ann", 5)
        fresh = restarted(recommender)
        interruptions.append(partial(fresh.use_catalog, OTHER_CATALOG))
        assert set(ids(fresh.recommend("ann", 5))) <= set(OTHER_CATALOG.item_ids)
        check_catalogs(fresh)
        assert inconsistencies(fresh) == []


def test_a_preview_knows_what_another_process_wrote(store: Store) -> None:
    first, second = Recommender(CATALOG, store=store), Recommender(CATALOG, store=store)
    slate = first.recommend("ann", 5)
    second.feedback(slate.slate_id, ids(slate)[:2])
    second.recommend("ann", 5)
    assert first.preview("ann", 5) == second.preview("ann", 5)


def test_the_check_of_lost_slates_and_events_can_fail() -> None:
    """Negative control: somebody who was forgotten has lost everything."""
    with Recommender(CATALOG) as recommender:
        client = Client(recommender, random.Random(0))
        client.take_slates()
        assert lost_or_repeated(recommender, [client]) == []
        recommender.forget("ann")
        client.slates.append(recommender.recommend("ann", 4))
        assert len(lost_or_repeated(recommender, [client])) == len(client.slates) - 1 + len(client.events)


def test_a_forgotten_user_leaves_no_row_in_postgresql(postgres_server: Server) -> None:
    """Not even if a slate of the user expires, or a draft is recorded, right after the user was forgotten."""
    clock, store = Clock(), InterruptedStore(open_store(emptied(postgres_server)))
    with Recommender(CATALOG, store=store, clock=clock) as recommender:
        slate_and_expired(recommender, clock)
        draft = recommender.draft(SlateRequest("ann", 5))
        store.before_writes.append(partial(recommender.forget, "ann"))
        assert recommender.close_expired() == 0
        assert recommender.record(draft).result() is None
        recommender.rebuild("ann")
        with psycopg.connect(postgres_server.url) as connection:
            assert connection.execute("SELECT user_id FROM slatewise.users").fetchall() == []


def test_merging_while_both_users_are_active_loses_nothing(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    shown: list[str] = []

    def take_slates(user: str) -> None:
        for number in range(8):
            slate = recommender.recommend(user, 3)
            shown.append(slate.slate_id)
            recommender.feedback(slate.slate_id, ids(slate)[:1], event_id=f"{user} {number}", user=user)
            recommender.record_event(Event(user, 100 + number, "like", event_id=f"event {user} {number}"))

    def merge_often() -> None:
        for _ in range(6):
            recommender.merge("ann", "session")
            time.sleep(0.005)

    at_once([partial(take_slates, "ann"), partial(take_slates, "session"), merge_often])
    recommender.merge("ann", "session")
    export = recommender.export("ann")
    assert sorted(slate["slate_id"] for slate in export["slates"]) == sorted(shown)
    assert [slate["number"] for slate in export["slates"]] == list(range(16))
    assert (len(export["feedback"]), len(export["events"])) == (16, 16)
    assert list(store.users()) == ["ann"]
    assert [problem for _, problem in recommender.verify() if problem] == []
    profile = loaded_profile(recommender, "ann")
    known = learn_everything(profile).state
    assert state_codec.difference(known, folded(recommender, "ann", profile.policy)) <= 1e-9


def test_feedback_locks_only_the_user_whose_slate_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that it names, from whom it was merged away: a merge of both locks them in another order."""
    locked, lock = list[str](), MemoryTables.lock

    def noting(tables: MemoryTables, user: str) -> UserRecord:
        locked.append(user)
        return lock(tables, user)

    with Recommender(CATALOG) as recommender:
        slate = recommender.recommend("session", 3)
        recommender.merge("ann", "session")
        recommender.recommend("session", 3)
        monkeypatch.setattr(MemoryTables, "lock", noting)
        recommender.feedback(slate.slate_id, ids(slate)[:1], user="session")
        assert {*locked} == {"ann"}
