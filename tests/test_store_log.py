"""`slatewise store fit` and `replay`: what is fitted is followed, and a log that was chosen otherwise is noticed."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.recommender.fitting import slate_log
from slatewise.store.memory import MemoryStore
from slatewise.store.protocol import Transaction
from slatewise.store.records import SlateRecord, UserRecord
from tests.support.recommending import make_catalog, served_catalog
from tests.test_importing import slatewise

LOOKED_AT = (1.0, 0.7, 0.4, 0.4)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, str]:
    """A catalog, and a store of people who like every third item, and do not look at all places."""
    catalog, url = tmp_path / "shop", f"sqlite:///{tmp_path / 's.db'}"
    make_catalog(60).save(catalog)
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        visit(recommender, 30)
    return catalog, url


def visit(recommender: Recommender, n_users: int) -> None:
    draw = np.random.default_rng(0)
    for user in range(n_users):
        for _ in range(3):
            slate = recommender.recommend(f"user {user}", 4)
            liked = [item.id for item, chance in zip(slate.items, LOOKED_AT, strict=True) if draw.random() < chance]
            recommender.feedback(slate.slate_id, [item for item in liked if int(item) % 3 == 0])


def test_a_fit_is_printed_with_its_uncertainty_and_followed(shop: tuple[Path, str]) -> None:
    catalog, url = shop
    fitted = slatewise("store", "fit", "--catalog", catalog, "--store", url, "--no-save")
    assert fitted.exit_code == 0, fitted.output
    assert "90 slates of 30 users" in fitted.output
    assert "place 4: looked at with probability" in fitted.output
    assert "weight of a skip:" in fitted.output
    with Recommender(Catalog.load(catalog), store=url, attention="curve") as recommender:
        assert not recommender.follow_fit()
        fit = recommender.fit_attention()
        assert recommender.follow_fit()
        assert recommender.attention == fit.attention
    saved = slatewise("store", "fit", "--catalog", catalog, "--store", url, "--json")
    assert json.loads(saved.stdout)["attention"]["curve"] == list(fit.attention.curve)


def test_only_slates_that_somebody_spoke_of_are_fitted() -> None:
    recommender = Recommender(make_catalog(60), store=MemoryStore())
    visit(recommender, 4)
    recommender.recommend("silent", 4)
    recommender.recommend("silent", 2)
    slate = recommender.recommend("told", 2)
    recommender.feedback(slate.slate_id, [slate.items[0].id], seen=1)
    log = slate_log(recommender.store, served_catalog(recommender))
    assert log.reactions.items.shape == (13, 4)
    told = np.flatnonzero(log.reactions.is_seen_told)
    assert len(told) == 1
    assert log.reactions.items[told[0], 2:].tolist() == [-1, -1]
    assert log.reactions.seen[told[0]].tolist() == [True, False, False, False]
    assert len(slate_log(recommender.store, served_catalog(recommender), most_slates=3).users) == 3


def test_a_log_without_reactions_cannot_be_fitted(tmp_path: Path) -> None:
    catalog, url = tmp_path / "shop", f"sqlite:///{tmp_path / 's.db'}"
    make_catalog(60).save(catalog)
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        recommender.recommend("ann")
    refused = slatewise("store", "fit", "--catalog", catalog, "--store", url)
    assert refused.exit_code == 1
    assert "nobody has reacted to a slate yet" in refused.output


def test_the_log_chooses_the_same_again_and_a_difference_fails(shop: tuple[Path, str]) -> None:
    """The control: a slate whose items were exchanged in the log."""
    catalog, url = shop
    done = slatewise("store", "replay", "--catalog", catalog, "--store", url)
    assert (done.exit_code, done.stdout) == (0, "90 slates: the same items\n")
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        store = recommender.store
        slate = store.read(lambda t: t.slates_of("user 7"))[0]
        choice = store.read(lambda t: t.choices_of("user 7"))[0]
        wrong = SlateRecord(**{**asdict(slate), "user": "wrong", "slate_id": "wrong", "items": slate.items[::-1]})

        def job(transaction: Transaction) -> None:
            transaction.add_slate(wrong, choice)
            transaction.save_user(UserRecord("wrong", "version", 1, wrong.created_at))

        store.write(job).result()
    done = slatewise("store", "replay", "--catalog", catalog, "--store", url, "--json")
    assert done.exit_code == 1
    (different,) = json.loads(done.stdout)["different"]
    assert (different["user"], different["number"]) == ("wrong", 0)
    assert different["logged"] == list(slate.items[::-1])
    assert different["chosen"] == list(slate.items)
