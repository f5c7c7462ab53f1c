"""Training reads only what is new in a store, and learns the same as if it had read everything."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slatewise.evidence import Attention
from slatewise.recommender import Recommender, interaction_log
from slatewise.recommender.events import Event
from slatewise.recommender.interaction_log import read_interaction_log, read_news
from slatewise.recommender.rules import LearningRules
from slatewise.retraining import InteractionLog, refit
from slatewise.retraining.log_cache import ARRAYS, KnownLog, key_of
from tests.support.recommending import make_catalog
from tests.test_train_from_store import visit

RULES = LearningRules()


@pytest.fixture
def recommender(tmp_path: Path) -> Iterator[Recommender]:
    with Recommender(make_catalog(60), store=f"sqlite:///{tmp_path / 's.db'}") as found:
        visit(found, 20)
        yield found


def content(log: InteractionLog) -> list[object]:
    """Everything in a log, with the ids of items, however these are numbered."""
    rest = [getattr(log, name).tolist() for name in ARRAYS if name != "items"]
    return [*rest, [log.item_ids[item] for item in log.items.tolist()]]


def read_again(recommender: Recommender, known: KnownLog | None) -> tuple[int, list[object]]:
    reading = read_news(recommender.store, RULES, known)
    return reading.n_read, content(reading.known.log)


def whole(recommender: Recommender) -> list[object]:
    return content(read_interaction_log(recommender.store, RULES))


def write(recommender: Recommender) -> None:
    """Let people do things of every kind: react late, do something elsewhere, log in, be forgotten, come, only look."""
    late = recommender.recommend("user 3", 6)
    recommender.feedback(late.slate_id, [late.items[0].id], final=True)
    recommender.record_event(Event("user 4", 101, "purchase", at=1.0))
    recommender.record_event(Event("visitor", 103, "like"))
    recommender.merge("visitor", "user 5")
    recommender.forget("user 6")
    recommender.record_event(Event("newcomer", 104, "like"))
    recommender.recommend("only looks", 5)


def test_only_those_who_did_something_are_read_and_nothing_is_missed(recommender: Recommender, tmp_path: Path) -> None:
    first = read_news(recommender.store, RULES, None)
    assert first.n_read == 20
    first.known.write(tmp_path / "log", "rules")
    known = KnownLog.read(tmp_path / "log", "rules")
    assert known is not None
    assert read_again(recommender, known) == (0, whole(recommender))
    write(recommender)
    n_read, found = read_again(recommender, known)
    assert n_read == 5  # users 3, 4 and 5, and two who came
    assert found == whole(recommender)
    once = read_news(recommender.store, RULES, known).known
    assert read_again(recommender, once) == (0, whole(recommender))


def test_feedback_on_an_old_slate_is_noticed(recommender: Recommender) -> None:
    """What arrives late changes a step in the middle; its time does not tell that it is new."""
    slate = recommender.recommend("user 7", 6)
    recommender.recommend("user 7", 6)
    known = read_news(recommender.store, RULES, None).known
    recommender.feedback(slate.slate_id, [slate.items[1].id])
    n_read, found = read_again(recommender, known)
    assert (n_read, found) == (1, whole(recommender))
    assert found != content(known.log)


def test_without_versions_late_events_would_be_missed(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: whoever is known by id alone is never read again."""
    monkeypatch.setattr(interaction_log, "key_of", lambda user, _: key_of(user, ""))
    known = read_news(recommender.store, RULES, None).known
    write(recommender)
    assert read_again(recommender, known)[1] != whole(recommender)


def test_a_catalog_from_what_is_new_is_the_same_bit_by_bit(recommender: Recommender) -> None:
    known = read_news(recommender.store, RULES, None).known
    write(recommender)
    expected = refit(make_catalog(60), read_interaction_log(recommender.store, RULES))
    found = refit(make_catalog(60), read_news(recommender.store, RULES, known).known.log)
    assert np.array_equal(found.log_odds, expected.log_odds)
    assert np.array_equal(found.taste_vectors, expected.taste_vectors)
    assert not np.array_equal(refit(make_catalog(60), known.log).log_odds, expected.log_odds)


def test_a_file_that_cannot_be_trusted_is_not_used(recommender: Recommender, tmp_path: Path) -> None:
    file, rules = tmp_path / "log", repr(RULES)
    assert KnownLog.read(file, rules) is None
    known = read_news(recommender.store, RULES, None).known
    known.write(file, rules)
    assert KnownLog.read(file, repr(LearningRules(Attention("until-last-click")))) is None
    intact = file.read_bytes()
    assert b"user 3" not in intact
    for place in (0, 40, len(intact) // 2, len(intact) - 1):
        flipped = bytearray(intact)
        flipped[place] ^= 4
        file.write_bytes(flipped)
        assert KnownLog.read(file, rules) is None, place
    for length in (0, 10, 32, 100):
        file.write_bytes(intact[:length])
        assert KnownLog.read(file, rules) is None, length
