"""A process beside that chooses slates changes nothing but time: not when it works, not when it dies."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Recommender, Slate, chooser, people, states, wire
from slatewise.recommender.beside import Chooser
from slatewise.recommender.choosing import Request
from slatewise.recommender.serving import serve
from tests.postgres import Server as PostgresServer
from tests.serving import Server
from tests.store_rows import emptied
from tests.test_recommender import Clock, at_hand, ids, make_catalog

PEOPLE = ("ann", "bob", "Zoë ✓")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("catalog") / "saved"
    make_catalog(200).save(found)
    return found


@pytest.fixture
def recommender(directory: Path, tmp_path: Path) -> Iterator[Recommender]:
    """A recommender whose chooser is ready."""
    with Recommender(Catalog.load(directory), store=f"sqlite:///{tmp_path / 'slates.db'}", clock=Clock()) as opened:
        opened.choose_beside(directory)
        until(lambda: is_ready(opened))
        yield opened


def chooser_of(recommender: Recommender) -> Chooser:
    found = recommender.desk.chooser
    assert found is not None
    return found


def is_ready(recommender: Recommender) -> bool:
    """Whether the chooser can be asked; asking is how it is found out."""
    recommender.recommend("somebody", 1)
    return recommender.chosen_beside > 0


def until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def visit(recommender: Recommender, n_rounds: int) -> list[Slate]:
    """Slates of several people, answered in several ways, and not at all."""
    slates = []
    for number in range(n_rounds):
        for user in PEOPLE:
            knob: dict[str, Any] = {"diversity": 0.9} if number % 3 == 1 else {}
            slate = recommender.recommend(user, 4 + number % 3, **knob)
            if number % 4 < 3:
                recommender.feedback(slate.slate_id or "", ids(slate)[: number % 4], final=number % 2 == 0)
            slates.append(slate)
    return slates


def content(slate: Slate) -> Slate:
    """Everything but the id, which is drawn."""
    return replace(slate, slate_id=None)


@pytest.mark.parametrize("policy", ["dc2b-calibrated", "dc2b", "mmr", "popular", "random"])
def test_slates_are_the_same_with_and_without(policy: str, directory: Path, tmp_path: Path) -> None:
    found = []
    for beside in (False, True):
        store = f"sqlite:///{tmp_path / f'{beside}.db'}"
        with Recommender(Catalog.load(directory), policy, store, seed=5, clock=Clock()) as opened:
            if beside:
                opened.choose_beside(directory)
                until(lambda: is_ready(opened))
            found.append([content(slate) for slate in visit(opened, 12)])
            assert opened.chosen_beside >= (len(found[0]) // 2 if beside else 0)
            assert [problem for _, problem in opened.verify() if problem] == []
    assert found[0] == found[1]


def test_beliefs_read_from_the_store_are_understood(directory: Path, tmp_path: Path) -> None:
    """The store gives back the arrays of a belief in any order."""
    users, found = [f"user {number}" for number in range(12)], []
    for beside in (False, True):
        store = f"sqlite:///{tmp_path / f'{beside}.db'}"
        with Recommender(Catalog.load(directory), store=store, clock=Clock()) as opened:
            if beside:
                opened.choose_beside(directory)
                until(lambda: is_ready(opened))
            slates = [[opened.recommend(user, 4) for _ in range(people.SAVED_EVERY + 1)] for user in users]
            opened.desk.at_hand.clear()
            before = opened.chosen_beside
            for latest in [history[-1] for history in slates]:
                opened.feedback(latest.slate_id or "", ids(latest)[:2], final=False)
            found.append([content(opened.recommend(user, 4)) for user in users])
            assert opened.chosen_beside == before + (len(users) if beside else 0)
            assert all(is_learnt(opened, user) for user in users)
    assert found[0] == found[1]


def test_several_threads_of_postgresql_share_a_chooser(directory: Path, postgres_server: PostgresServer) -> None:
    with Recommender(Catalog.load(directory), store=emptied(postgres_server)) as opened:
        opened.choose_beside(directory)
        until(lambda: is_ready(opened))
        for _ in range(6):
            asked = [opened.recommend_later(user, 5) for user in (*PEOPLE, "cat", "dan", "eve")]
            for slate in [future.result(30) for future in asked]:
                opened.feedback(slate.slate_id or "", ids(slate)[:2])
        assert opened.chosen_beside >= 18
        assert [problem for _, problem in opened.verify() if problem] == []


def test_what_is_said_is_understood(directory: Path) -> None:
    spaces = Recommender(Catalog.load(directory)).desk.spaces
    space = spaces.space("dc2b-calibrated")
    draw = np.random.default_rng(1)
    closed = [(draw.integers(-1, 50, size=size), draw.random(size) < 0.5) for size in (3, 1, 0, 7)]
    state: State = {name: draw.normal(size=array.shape).astype(array.dtype) for name, array in space.start.items()}
    for question in (
        wire.Question("dc2b-calibrated", "Zoë ✓", 7, 0.25, 12, np.arange(9), (4, 5), closed, state),
        wire.Question("dc2b-calibrated", "u", 1, None, 0, np.arange(0), (), [], space.start),
    ):
        sent = question.to_bytes()
        read = wire.Question.from_bytes(sent, space.start)
        assert wire.policy_of(sent) == question.policy
        assert (read.policy, read.user, read.k, read.diversity, read.n_slates, read.liked) == (
            question.policy,
            question.user,
            question.k,
            question.diversity,
            question.n_slates,
            question.liked,
        )
        np.testing.assert_array_equal(read.shown, question.shown)
        assert len(read.closed) == len(question.closed)
        for (numbers, clicks), (sent_numbers, sent_clicks) in zip(read.closed, question.closed, strict=True):
            np.testing.assert_array_equal(numbers, sent_numbers)
            np.testing.assert_array_equal(clicks, sent_clicks)
        assert all(np.array_equal(read.state[name], question.state[name]) for name in space.start)
        assert all(array.flags.aligned for array in read.state.values())
        chosen, learnt = wire.answer_from_bytes(chooser.answer(spaces, sent, 0), space)
        assert len(chosen.numbers) == question.k
        assert learnt["rounds"] == question.state["rounds"] + len(question.closed)


def test_what_cannot_be_chosen_is_an_empty_answer(directory: Path) -> None:
    spaces = Recommender(Catalog.load(directory)).desk.spaces
    start = spaces.space("popular").start
    unknown = wire.Question("no such policy", "u", 1, None, 0, np.arange(0), (), [], start)
    assert chooser.answer(spaces, unknown.to_bytes(), 0) == b""
    nothing_left = wire.Question("popular", "u", 1, None, 0, np.arange(200), (), [], start)
    assert chooser.answer(spaces, nothing_left.to_bytes(), 0) != b""
    impossible = {name: 0 * array for name, array in spaces.space("dc2b-calibrated").start.items()}
    singular = wire.Question("dc2b-calibrated", "u", 1, None, 0, np.arange(0), (), [], impossible)
    assert chooser.answer(spaces, singular.to_bytes(), 0) == b""


def test_no_room_for_another_process(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with Recommender(Catalog.load(directory)) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", refuse)
            opened.choose_beside(directory)
        assert opened.has_lost_chooser
        assert len(opened.recommend("ann", 3).items) == 3
        opened.choose_beside(directory)
        assert not opened.has_lost_chooser


def test_a_slate_chosen_before_a_click_is_not_shown_after_it(recommender: Recommender) -> None:
    slate = recommender.recommend("ann", 5)
    desk, request = recommender.desk, Request("ann", 5)
    ticket = desk.ahead(request)
    assert ticket is not None
    recommender.feedback(slate.slate_id or "", ids(slate)[:3])
    before = recommender.chosen_beside
    recommender.store.submit(lambda t: serve(desk, t, request, record=True, ahead=ticket)).result()
    assert recommender.chosen_beside == before
    assert is_learnt(recommender, "ann")


def test_without_that_check_the_click_would_be_lost(recommender: Recommender) -> None:
    slate = recommender.recommend("ann", 5)
    desk, request = recommender.desk, Request("ann", 5)
    ticket = desk.ahead(request)
    assert ticket is not None
    recommender.feedback(slate.slate_id or "", ids(slate)[:3])
    ticket.person = at_hand(recommender, "ann")
    recommender.store.submit(lambda t: serve(desk, t, request, record=True, ahead=ticket)).result()
    assert not is_learnt(recommender, "ann")


def is_learnt(recommender: Recommender, user: str) -> bool:
    """Whether who is at hand knows what the log says."""
    person = at_hand(recommender, user)
    read = recommender.store.read(lambda t: people.load(t, t.lock(user), recommender.desk.spaces, person.space))
    return states.difference(person.state, read.state) < 1e-9


def test_a_killed_chooser_is_not_missed(recommender: Recommender, directory: Path) -> None:
    visit(recommender, 2)
    chooser_of(recommender).process.kill()
    chooser_of(recommender).process.wait()
    visit(recommender, 3)
    assert recommender.has_lost_chooser
    assert [problem for _, problem in recommender.verify() if problem] == []
    recommender.choose_beside(directory)
    until(lambda: is_ready(recommender))
    assert not recommender.has_lost_chooser


def test_a_chooser_that_hangs_is_given_up(recommender: Recommender) -> None:
    recommender.recommend("ann", 5)
    process = chooser_of(recommender).process
    os.kill(process.pid, signal.SIGSTOP)
    assert len(recommender.recommend("ann", 5).items) == 5
    assert recommender.has_lost_chooser
    assert process.wait(10) == -signal.SIGKILL


def test_asking_never_waits(recommender: Recommender) -> None:
    """A process that does not read gets no more than fits into the pipe; it is read on when it comes back."""
    recommender.recommend("ann", 5)
    process, desk = chooser_of(recommender).process, recommender.desk
    os.kill(process.pid, signal.SIGSTOP)
    tickets = [desk.ahead(Request("ann", 5)) for _ in range(3_000)]
    assert tickets[0] is not None
    assert tickets[-1] is None
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: desk.ahead(Request("ann", 5)) is not None)
    assert not recommender.has_lost_chooser
    before = recommender.chosen_beside
    recommender.recommend("ann", 5)
    assert recommender.chosen_beside == before + 1


def test_another_catalogue_is_not_asked(recommender: Recommender, tmp_path: Path) -> None:
    recommender.recommend("ann", 5)
    other = make_catalog(100, seed=9)
    recommender.use_catalog(other)
    recommender.recommend("ann", 5)
    before = recommender.chosen_beside
    recommender.recommend("ann", 5)
    assert recommender.chosen_beside == before
    other.save(tmp_path / "other")
    recommender.choose_beside(tmp_path / "other")
    until(lambda: is_ready(recommender))


@pytest.mark.parametrize(
    "wishes", [{"candidates": range(100, 150)}, {"exclude": [100]}, {"categories": ["A"]}, {"replaces": "x"}]
)
def test_special_wishes_are_served_here(recommender: Recommender, wishes: dict[str, Any]) -> None:
    recommender.recommend("ann", 5)
    before = recommender.chosen_beside
    recommender.recommend("ann", 5, **wishes)
    assert recommender.chosen_beside == before
    recommender.recommend("ann", 5, diversity=1.0, policy="dc2b-calibrated")
    assert recommender.chosen_beside == before + 1


def test_policies_that_the_chooser_did_not_prepare_are_served_here(recommender: Recommender) -> None:
    for name in ("popular", "popular"):
        before = recommender.chosen_beside
        recommender.recommend("ann", 5, policy=name)
        assert recommender.chosen_beside == before


def test_a_chooser_does_not_outlive_who_started_it(directory: Path) -> None:
    words = (
        "import sys, time; from pathlib import Path; from slatewise.recommender.beside import Chooser\n"
        "print(Chooser(Path(sys.argv[1]), 0, []).process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", words, str(directory)], stdout=subprocess.PIPE, text=True) as parent:  # noqa: S603
        assert parent.stdout is not None
        beside = int(parent.stdout.readline())
        assert Path(f"/proc/{beside}").exists()
        parent.kill()
    until(lambda: not Path(f"/proc/{beside}/exe").exists())


@pytest.mark.parametrize("ends", ["in peace", "killed"])
def test_a_service_and_its_chooser(tmp_path: Path, ends: str) -> None:
    """It is used, follows a reloaded catalogue, may be killed under traffic, and leaves with the service."""
    make_catalog(200).save(tmp_path / "catalog")
    with Server(tmp_path, ["--store", "sqlite:///slates.db"], {"SLATEWISE_CHOOSER": "true"}) as server:
        assert server.process is not None
        with server.client() as client:

            def is_used() -> bool:
                assert client.post("/v1/slates", json={"user": "ann"}).status_code == 201
                counted = re.search(r"^slatewise_slates_chosen_beside_total (\S+)", client.get("/metrics").text, re.M)
                return counted is not None and float(counted[1]) > 0

            until(is_used)
            first = children(server.process.pid)
            make_catalog(150, seed=4).save(tmp_path / "catalog")
            assert client.post("/v1/catalog/reload", json={}).status_code == 200
            until(is_used)
            second = children(server.process.pid)
            assert (len(first), len(second), first & second) == (1, 1, set())
            os.kill(next(iter(second)), signal.SIGKILL)
            for user in ("ann", "bob", "ann", "bob"):
                assert client.post("/v1/slates", json={"user": user}).status_code == 201
            if ends == "in peace":
                assert server.stop() == 0
    until(lambda: not any(Path(f"/proc/{one}/exe").exists() for one in first | second))
    assert "Traceback" not in server.logged()


def children(process: int) -> set[int]:
    """The processes that any thread of a process started."""
    lists = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return {int(one) for found in lists for one in found}


def test_a_directory_without_a_catalogue_is_a_lost_chooser(recommender: Recommender, tmp_path: Path) -> None:
    recommender.choose_beside(tmp_path / "nothing")
    until(lambda: bool(recommender.recommend("ann", 5)) and recommender.has_lost_chooser)
