"""`slatewise train --policy`: a catalog keeps what a policy needs, so that it can be served and judged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from slatewise.catalog import Catalog
from slatewise.cli import app
from slatewise.data.dataset import Dataset
from slatewise.policies import POLICIES
from slatewise.recommender import PolicyShare, Recommender
from slatewise.service.retraining import Retraining
from slatewise.service.settings import load_settings
from tests.support.serving import Server

DRAWN = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.5})}


def slatewise(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def likes(tmp_path: Path) -> Path:
    rows = "".join(f"u{user},i{item}\n" for user in range(20) for item in range(15) if (user * item) % 5 < 2)
    (tmp_path / "likes.csv").write_text("user_id,item_id\n" + rows)
    return tmp_path / "likes.csv"


def train(likes: Path, *more: object) -> Catalog:
    out = likes.parent / "catalog"
    done = slatewise("train", "--interactions", likes, "--out", out, "--epochs", 2, "--dim", 2, *more)
    assert done.exit_code == 0, done.output
    return Catalog.load(out)


def visit(recommender: Recommender) -> None:
    for user in range(4):
        slate = recommender.recommend(f"user {user}", 3)
        recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)


def test_a_catalog_keeps_what_its_policies_need(likes: Path) -> None:
    """The same numbers as from Python; without the option, and for policies that need nothing, nothing is kept."""
    dataset = Dataset.from_files(likes)
    kept = train(likes, "--policy", "ease", "--policy", "ials")
    assert kept.co_likes is not None
    assert kept.likes is not None
    plain = train(likes, "--policy", "popular")
    assert (plain.co_likes, plain.likes) == (None, None)
    np.testing.assert_array_equal(kept.co_likes, plain.with_co_likes(dataset).co_likes)
    np.testing.assert_array_equal(kept.likes, plain.with_likes(dataset).likes)
    assert train(likes, "--without-bpr", "--policy", "gaussian").co_likes is not None
    assert "there is no policy 'magic'" in str(slatewise("train", "--out", "x", "--policy", "magic").exception)


@pytest.mark.parametrize("name", [name for name in POLICIES.built_in if getattr(POLICIES[name], "needs", ())])
def test_a_policy_is_judged_by_the_catalog_that_was_trained_for_it(likes: Path, name: str) -> None:
    """Also on slates from before. Negative control: by another one it is not, and the message says how to train."""
    url, catalog = f"sqlite:///{likes.parent}/slates.db", train(likes)
    command = ("evaluate", "--catalog", likes.parent / "catalog", "--store", url, "--policy", name, "--json")
    with Recommender(catalog, DRAWN, url) as recommender:
        visit(recommender)
    assert f"slatewise train --policy {name}" in str(slatewise(*command).exception)
    train(likes, "--policy", name)
    done = slatewise(*command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["slates"] == 4


def test_training_from_a_log_keeps_what_the_start_has(likes: Path) -> None:
    """It has nothing else to take it from: a start without it is refused."""
    catalog, url = likes.parent / "catalog", f"sqlite:///{likes.parent}/slates.db"
    with Recommender(train(likes), DRAWN, url) as recommender:
        visit(recommender)
    refused = slatewise("train", "--store", url, "--out", catalog, "--policy", "ease")
    assert "does not hold co_likes" in str(refused.exception) + refused.output
    train(likes, "--policy", "ease")
    done = slatewise("train", "--store", url, "--out", catalog, "--policy", "ease")
    assert done.exit_code == 0, done.output
    learned = Catalog.load(catalog)
    assert learned.about["log"]["people"] == 4
    assert learned.co_likes is not None


def test_trainings_on_schedule_keep_what_is_served(tmp_path: Path) -> None:
    policies = {"dc2b-calibrated": 0.9, "rival": {"policy": "ease", "share": 0.1}}
    settings = load_settings({"catalog": tmp_path, "retrain": "1h", "policies": policies})
    words = Retraining(settings).command()
    assert [words[at + 1] for at, word in enumerate(words) if word == "--policy"] == ["dc2b-calibrated", "ease"]


@pytest.mark.process
def test_a_service_serves_it(likes: Path) -> None:
    train(likes, "--policy", "ease")
    (likes.parent / "slatewise.toml").write_text("[policies]\ndc2b-calibrated = 0.9\nease = 0.1\n")
    with Server(likes.parent, ["--store", "memory://"]) as server, server.client() as client:
        slate = client.post("/v1/slates", json={"user": "ann", "k": 3, "policy": "ease"}).json()
    assert (slate["policy"], len(slate["items"])) == ("ease", 3)
