"""A store and a catalog written by an older slatewise open and serve; tests/fixtures/write_store.py wrote them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slatewise.catalog import Catalog
from slatewise.evidence import Attention
from slatewise.recommender import PolicyShare, Recommender, state_codec
from slatewise.recommender.profile import SAVE_EVERY
from slatewise.store import open_store
from tests.support.old_store import EXPECTED, FIXTURE, USERS, copied_store
from tests.support.recommending import folded, ids, loaded_profile, stored_belief


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A copy of the old store, in either database."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgresql" else None
    with copied_store(tmp_path, server) as url:
        yield url


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A copy of the old catalog."""
    return Catalog.load(Path(shutil.copytree(FIXTURE / "catalog", tmp_path / "catalog")))


@pytest.fixture
def recommender(store_url: str, catalog: Catalog) -> Iterator[Recommender]:
    """The old version took everything on a slate as seen, and tastes had no categories."""
    options = {"dc2b-calibrated": {"category_weight": 0.0}}
    shares = {
        name: PolicyShare(name, share, options=options.get(name, {})) for name, share in EXPECTED["shares"].items()
    }
    with Recommender(catalog, shares, store_url, attention=Attention()) as opened:
        yield opened


def test_the_old_store_is_whole(recommender: Recommender) -> None:
    assert sorted(recommender.store.users()) == sorted(USERS)
    assert recommender.store.check() == []
    assert dict(recommender.verify()) == dict.fromkeys(USERS)
    results = [[row.policy, row.users, row.slates, row.clicks] for row in recommender.experiments()]
    assert results == EXPECTED["experiments"]


def is_answered(recommender: Recommender, user: str) -> bool:
    """Whether there is feedback on every slate of a user that was counted; others no longer teach anything."""
    export = recommender.export(user)
    answered = {event["slate_id"] for event in export["feedback"]}
    return all(slate["slate_id"] in answered for slate in export["slates"] if slate["status"] != "withdrawn")


@pytest.mark.parametrize("user", USERS)
def test_the_next_slate_is_the_one_that_the_old_version_would_have_chosen(recommender: Recommender, user: str) -> None:
    expected = USERS[user]
    counted = [slate for slate in recommender.export(user)["slates"] if slate["status"] != "withdrawn"]
    shown = {item for slate in counted for item in slate["items"]}
    is_same = is_answered(recommender, user)
    slate = recommender.recommend(user, 5)
    assert (slate.policy, slate.number) == (expected["policy"], expected["next_number"])
    assert not set(ids(slate)) & shown
    if is_same:
        assert ids(slate) == expected["next_items"]
        assert [item.probability for item in slate.items] == pytest.approx(expected["next_probabilities"], abs=1e-5)


def test_some_old_users_answered_everything(recommender: Recommender) -> None:
    """So that the test above compares something."""
    assert any(is_answered(recommender, user) for user in USERS)


@pytest.mark.parametrize("user", USERS)
def test_old_beliefs_are_learned_again_from_the_log(recommender: Recommender, user: str) -> None:
    """Version 1 of the schema kept less in a belief; the log is what counts."""
    policy = USERS[user]["policy"]
    assert stored_belief(recommender, user).content is None
    view = recommender.explain(user)
    assert (view.slates, view.clicks) == (USERS[user]["slates"], USERS[user]["clicks"])
    for _ in range(3):
        slate = recommender.recommend(user, 5)
        recommender.feedback(slate.slate_id, ids(slate)[:2])
    assert recommender.rebuilt <= 1
    profile = loaded_profile(recommender, user, policy)
    assert state_codec.difference(profile.learned.state, folded(recommender, user, profile.policy)) <= 1e-9
    assert dict(recommender.verify())[user] is None


def test_old_slates_take_late_feedback_and_old_events_are_recognized(recommender: Recommender) -> None:
    for user in USERS:
        export = recommender.export(user)
        first, event = export["slates"][0], export["feedback"][0]
        options = {name: event[name] for name in ("clicked", "retracted", "event_id", "final")}
        assert recommender.feedback(event["slate_id"], **options).duplicate
        assert not recommender.feedback(first["slate_id"], first["items"], event_id=f"late {user}").duplicate
    assert dict(recommender.verify()) == dict.fromkeys(USERS)


def test_the_old_store_can_be_read_next_to_its_writer(recommender: Recommender, store_url: str) -> None:
    reader = open_store(store_url, read_only=True)
    assert sorted(reader.users()) == sorted(recommender.store.users())
    reader.close()


def test_with_another_catalog_old_beliefs_would_be_learned_again(store_url: str, catalog: Catalog) -> None:
    """Negative control: `rebuilt` counts, and the key of a belief depends on the catalog."""
    other = Catalog.from_vectors(catalog.item_ids, catalog.vectors[::-1])
    with Recommender(other, EXPECTED["shares"], store_url) as recommender:
        for user in USERS:
            recommender.recommend(user, 5)
        n_long = sum(expected["next_number"] > SAVE_EVERY + 1 for expected in USERS.values())
        assert recommender.rebuilt == n_long > 0
