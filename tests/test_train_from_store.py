"""`slatewise train --store`: a catalog from the log of a service, also next to it, and only if it predicts as well."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.versions import current_version, versions
from slatewise.cli import train_from_store
from slatewise.recommender import Item, Pin, Recommender, SlateRules
from slatewise.recommender.events import Event
from slatewise.retraining import refit
from slatewise.store.records import ItemRecord
from tests.support.recommending import make_catalog
from tests.test_importing import slatewise

PEOPLE = 60


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose people like every third item, told what was seen."""
    directory = tmp_path_factory.mktemp("filled")
    make_catalog(60).save(directory / "shop")
    with Recommender(make_catalog(60), store=f"sqlite:///{directory / 's.db'}") as recommender:
        visit(recommender, PEOPLE)
    return directory


def visit(recommender: Recommender, n_people: int) -> None:
    for person in range(n_people):
        recommender.record_event(Event(f"user {person}", 102, "like"))
    for _ in range(3):
        for person in range(n_people):
            slate = recommender.recommend(f"user {person}", 6)
            ids = [item.id for item in slate.items]
            recommender.feedback(slate.slate_id, [item for item in ids if int(item) % 3 == 0], seen=ids)


@pytest.fixture
def shop(filled: Path, tmp_path: Path) -> tuple[Path, str]:
    for path in (filled / "shop").iterdir():
        (tmp_path / "shop").mkdir(exist_ok=True)
        (tmp_path / "shop" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "shop", f"sqlite:///{filled / 's.db'}"


def trained(*words: object) -> dict[str, Any]:
    done = slatewise("train", *map(str, words), "--json")
    assert done.stdout, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if result["promoted"] else 1)
    return result


def test_the_log_teaches_what_is_liked_next_to_a_running_service(shop: tuple[Path, str]) -> None:
    catalog, url = shop
    before = current_version(catalog)
    with Recommender(Catalog.load(catalog), store=url):
        result = trained("--store", url, "--out", catalog)
    assert (result["log"]["people"], result["log"]["slates"], result["start"]) == (PEOPLE, 3 * PEOPLE, before)
    assert result["version"] == current_version(catalog) != before
    learned = Catalog.load(catalog)
    liked = learned.log_odds[np.arange(100, 160) % 3 == 0].mean()
    assert liked > learned.log_odds[np.arange(100, 160) % 3 != 0].mean() + 1.0
    again = trained("--store", url, "--out", catalog)
    assert (again["version"], again["start"]) == (result["version"], before)  # the log is never counted twice
    assert len(versions(catalog)) == 2
    told = slatewise("train", "--store", url, "--out", str(catalog)).output.replace("\n", " ")
    assert f"0 of {PEOPLE} people did something since the last training" in told


def test_items_of_the_item_table_join_the_catalog(shop: tuple[Path, str], tmp_path: Path) -> None:
    catalog, _ = shop
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        visit(recommender, 3)
        new = [ItemRecord(999, "New", ("A", "Z")), ItemRecord(100, "Known")]
        recommender.store.write(lambda transaction: transaction.put_items(new)).result()
    assert trained("--store", url, "--out", catalog)["items"] == 61
    learned = Catalog.load(catalog)
    assert learned.titles[learned.index_of(999)] == "New"
    assert learned.categories_of(learned.index_of(999)) == ("A", "Z")
    assert learned.rate_strengths[learned.index_of(999)] < 50


def test_the_gate_accepts_an_honest_catalog_and_keeps_out_a_worse_one(shop: tuple[Path, str]) -> None:
    catalog, url = shop
    passed = trained("--store", url, "--out", catalog, "--gate")
    assert passed["promoted"]
    assert passed["gate"]["difference"]["high"] < 0
    good = Catalog.load(catalog)
    backwards = replace(good, log_odds=-good.log_odds, rate_strength=np.full(60, 500.0), about={"data": {"users": 500}})
    backwards.save(catalog)
    good.save(catalog)
    start = replace(good, about={"start": backwards.save(catalog, promote=False)[:16]})
    serving = start.save(catalog)[:16]
    refused = slatewise("train", "--store", url, "--out", catalog, "--gate")
    assert (refused.exit_code, current_version(catalog)) == (1, serving)
    assert "without the latest slates, is kept" in refused.output.replace("\n", " ")
    assert "refused: it predicts people worse" in refused.output.replace("\n", " ")
    told = re.search(r"`slatewise (catalog promote .*?)` puts it in use", refused.output.replace("\n", " "))
    assert told, refused.output
    assert slatewise(*shlex.split(told[1])).exit_code == 0
    assert current_version(catalog) == told[1].split()[2] != serving


@pytest.fixture
def news(shop: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """The shop after a new item was shown at the head of the latest slates, and often liked."""
    catalog, url = shop
    shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "news.db")
    url = f"sqlite:///{tmp_path / 'news.db'}"
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        recommender.put_items([Item(999, "News", ["A", "E"])])
        rules = SlateRules(pin=(Pin(999, 1),))
        for person in range(45):
            slate = recommender.recommend(f"late user {person}", 6, rules=rules)
            ids = [item.id for item in slate.items]
            liked = [item for item in ids if int(item) % 3 == 0 and (item != 999 or person % 3)]
            recommender.feedback(slate.slate_id, liked, seen=ids)
    return catalog, url


def test_what_the_latest_slates_taught_survives_a_training_that_the_gate_accepts(news: tuple[Path, str]) -> None:
    catalog, url = news
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        recommender.rebuild_rates()
        before = recommender.rate(999)
    result = trained("--store", url, "--out", catalog, "--gate")
    assert result["promoted"], result["words"]
    assert result["log"]["slates"] == 3 * PEOPLE + 45
    learned = Catalog.load(catalog).about["log"]
    assert learned["judged_from"] < learned["until"]
    assert f"until {datetime.fromtimestamp(learned['until'], UTC):%Y-%m-%d %H:%M:%S} UTC" in result["words"][0]
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        after = recommender.rate(999)
    assert before.low < after.value < before.high
    assert after.seen > 0.8 * before.seen


def test_a_catalog_is_compared_as_it_was_without_the_slates_to_predict(news: tuple[Path, str]) -> None:
    """The one in use has learned the answers: a training like the one that made it must not look worse."""
    catalog, url = news
    for words in ((), ("--gate",)):
        trained("--store", url, "--out", catalog, *words)
        again = trained("--store", url, "--out", catalog, "--gate")
        assert again["promoted"], again["words"]
        assert again["gate"]["difference"]["value"] == 0.0


def test_nothing_is_promoted_if_the_training_on_the_latest_slates_fails(
    news: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, url = news
    before, fits = current_version(catalog), iter([refit])

    def failing(*arguments: Any) -> Catalog:
        return next(fits, _no_memory)(*arguments)

    monkeypatch.setattr(train_from_store, "refit", failing)
    done = slatewise("train", "--store", url, "--out", str(catalog), "--gate")
    assert "the gate accepts the training" in done.output.replace("\n", " ")
    assert (done.exit_code, current_version(catalog)) == (1, before)


def _no_memory(*_: Any) -> Catalog:
    raise MemoryError


@pytest.mark.slow
def test_files_and_a_log_are_joined_and_items_from_nowhere_are_told(shop: tuple[Path, str], tmp_path: Path) -> None:
    catalog, url = shop
    draw = np.random.default_rng(0)
    pairs = {"user_id": np.repeat(np.arange(200), 5), "item_id": draw.integers(100, 150, 1000)}
    for number in range(2):
        part = pl.DataFrame(pairs).slice(500 * number, 500)
        part.with_columns(timestamp=pl.lit(1.7e9)).write_csv(tmp_path / f"{number}.csv")
    files = ("--interactions", tmp_path / "0.csv", "--interactions", tmp_path / "1.csv", "--epochs", 1)
    result = trained("--store", url, "--out", catalog, "--half-life", 3000, *files)
    assert result["items"] == 50
    assert 100 < Catalog.load(catalog).about["data"]["users"] <= 200
    assert result["log"]["half_life"] == 3000
    make_catalog(60, first=104).save(tmp_path / "some")
    told = slatewise("train", "--store", url, "--out", tmp_path / "some")
    assert "items of the log are not in the catalog" in told.output.replace("\n", " ")


def test_what_cannot_be_learned_from_is_refused_in_one_sentence(shop: tuple[Path, str], tmp_path: Path) -> None:
    catalog, url = shop
    empty, header = tmp_path / "empty.csv", tmp_path / "header.csv"
    empty.write_text("")
    header.write_text("user_id,item_id\n")
    make_catalog(60, first=1000).save(tmp_path / "other")
    with Recommender(make_catalog(60), store=f"sqlite:///{tmp_path / 'new.db'}"):
        pass
    before = current_version(catalog)
    for words, message in (
        (("--store", f"sqlite:///{tmp_path / 'new.db'}", "--out", catalog), "the store is empty"),
        (("--store", f"sqlite:///{tmp_path / 'none.db'}", "--out", catalog), "there is no store"),
        (("--store", url, "--out", tmp_path / "other"), "has none of the"),
        (("--store", url, "--out", catalog, "--interactions", empty), "is empty"),
        (("--store", url, "--out", catalog, "--interactions", header), "has no rows"),
        (("--store", url, "--out", catalog, "--interactions", header, "--half-life", 3), "has no rows"),
        (("--out", catalog, "--gate", "--interactions", header), "give --store"),
        (("--store", url, "--out", catalog, "--half-life", -1), "not a positive number"),
    ):
        refused = slatewise("train", *map(str, words))
        assert refused.exit_code != 0, words
        assert message in f"{refused.output} {refused.exception}".replace("\n", " "), refused.output
    assert current_version(catalog) == before


@pytest.mark.slow
def test_a_log_alone_is_enough_to_begin_with(shop: tuple[Path, str], tmp_path: Path) -> None:
    _, url = shop
    result = trained("--store", url, "--out", tmp_path / "new", "--epochs", 1, "--gate")
    assert result["promoted"]
    assert result["items"] >= 3
