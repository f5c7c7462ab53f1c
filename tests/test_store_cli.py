"""`slatewise store`: what it finds, repairs and exports, also while a service runs."""

import json
from operator import methodcaller
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from slatewise.catalog import Catalog
from slatewise.cli import app
from slatewise.recommender import Recommender


def slatewise(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, words)])


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    vectors = np.random.default_rng(0).normal(size=(60, 4))
    Catalog.from_vectors(range(60), vectors, categories=["A", "B", "C"] * 20).save(tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.fixture
def url(catalog: Path, tmp_path: Path) -> str:
    """A store in which three people have answered ten slates each, so that beliefs are stored."""
    where = f"sqlite:///{tmp_path / 'slates.db'}"
    with Recommender(Catalog.load(catalog), store=where) as recommender:
        for user in ("alice", "bob", "carol") * 10:
            slate = recommender.recommend(user, 5)
            recommender.feedback(str(slate.slate_id), [slate.items[0].id])
    return where


def log_of(url: str) -> list[tuple[Any, ...]]:
    """The slates and the feedback of everyone."""
    lines = map(json.loads, slatewise("export", "--store", url).stdout.splitlines())
    return [(line["user"], line["slates"], line["feedback"], line["events"], line["counts"]) for line in lines]


def spoil(url: str, sql: str) -> None:
    """Change a store behind its back."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute(sql)
    connection.close()


def test_a_whole_store_verifies_also_beside_its_owner(catalog: Path, url: str) -> None:
    with Recommender(Catalog.load(catalog), store=url):
        done = slatewise("verify", "--catalog", catalog, "--store", url)
        assert (done.exit_code, done.stdout) == (0, "3 users verified, 0 problems\n")
        refused = slatewise("vacuum", "--store", url)
        assert refused.exit_code == 1
        assert "belongs to process" in refused.output


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("beliefs SET content = zeroblob(100)", "the cached belief"),
        ("users SET n_slates = 3", "the row of the user"),
    ],
)
def test_a_spoilt_belief_is_found_and_rebuilt(catalog: Path, url: str, change: str, problem: str) -> None:
    before = log_of(url)
    spoil(url, f"UPDATE {change} WHERE user_id = 'bob'")
    found = slatewise("verify", "--catalog", catalog, "--store", url, "--json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)["problems"]
    assert [one["user"] for one in told] == ["bob"]
    assert told[0]["problem"].startswith(problem)
    mended = slatewise("rebuild", "--catalog", catalog, "--store", url)
    assert (mended.exit_code, mended.stderr) == (0, "1 beliefs rebuilt from the log\n")
    assert slatewise("verify", "--catalog", catalog, "--store", url).exit_code == 0
    assert log_of(url) == before


def test_a_belief_that_is_lost_is_no_problem_and_can_be_learned_again(catalog: Path, url: str) -> None:
    spoil(url, "DELETE FROM beliefs")
    assert slatewise("verify", "--catalog", catalog, "--store", url).exit_code == 0
    assert slatewise("rebuild", "--catalog", catalog, "--store", url, "--all").exit_code == 0
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        beliefs = [recommender.store.read(methodcaller("belief", user)) for user in ("alice", "bob", "carol")]
    assert [one.covers for one in beliefs] == [10, 10, 10]
    assert slatewise("verify", "--catalog", catalog, "--store", url).exit_code == 0


def test_a_spoilt_log_is_found_and_the_others_are_still_verified(catalog: Path, url: str) -> None:
    spoil(url, "DELETE FROM feedback WHERE user_id = 'alice'; UPDATE slates SET variety = 2.0 WHERE user_id = 'carol'")
    found = slatewise("verify", "--catalog", catalog, "--store", url)
    assert found.exit_code == 1
    assert "user 'alice': " in found.stdout
    assert "user 'carol': " in found.stdout
    assert "3 users verified, 2 problems" in found.stdout


def test_rebuild_takes_one_or_all(catalog: Path, url: str) -> None:
    common = ("--catalog", catalog, "--store", url)
    assert slatewise("rebuild", *common).stderr.startswith("0 beliefs")
    assert slatewise("rebuild", *common, "--user", "bob").stderr.startswith("1 beliefs")
    assert slatewise("rebuild", *common, "--all").stderr.startswith("3 beliefs")
    assert "no user 'dave'" in slatewise("rebuild", *common, "--user", "dave").output


def test_export_is_the_log(url: str, catalog: Path) -> None:
    lines = [json.loads(line) for line in slatewise("export", "--store", url).stdout.splitlines()]
    assert [line["user"] for line in lines] == ["alice", "bob", "carol"]
    assert json.loads(slatewise("export", "--store", url, "--user", "bob").stdout) == lines[1]
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        exported = json.loads(json.dumps(recommender.export("bob")))
    assert {name: lines[1][name] for name in ("user", "slates", "feedback")} == {
        name: exported[name] for name in ("user", "slates", "feedback")
    }
    assert "no user 'dave'" in slatewise("export", "--store", url, "--user", "dave").output


def test_vacuum_leaves_nothing_of_the_forgotten(url: str, catalog: Path, tmp_path: Path) -> None:
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        recommender.forget("bob")
    assert slatewise("vacuum", "--store", url).exit_code == 0
    assert b"bob" not in (tmp_path / "slates.db").read_bytes()
    assert b"carol" in (tmp_path / "slates.db").read_bytes()


@pytest.mark.parametrize("verb", ["verify", "rebuild", "vacuum", "export", "backup"])
def test_a_store_that_is_not_there_is_not_made(verb: str, catalog: Path, tmp_path: Path) -> None:
    options = ["--catalog", str(catalog)] if verb in ("verify", "rebuild") else []
    options += [str(tmp_path / "copy.db")] if verb == "backup" else []
    done = slatewise(verb, *options, "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert done.exit_code == 1
    assert "there is no store" in done.output
    assert not (tmp_path / "none.db").exists()


def test_a_backup_of_a_running_service_can_be_restored(catalog: Path, url: str, tmp_path: Path) -> None:
    copy, before = tmp_path / "copy.db", log_of(url)
    with Recommender(Catalog.load(catalog), store=url) as recommender:
        done = slatewise("backup", copy, "--store", url, "--rate", "500")
        assert (done.exit_code, done.stderr.splitlines()[-1][:8]) == (0, "3 users ")
        assert "exists" in slatewise("backup", copy, "--store", url).output
        recommender.forget("bob")
        assert "belongs to process" in slatewise("restore", copy, "--store", url, "--replace").output
    assert "--replace" in slatewise("restore", copy, "--store", url).output
    assert len(log_of(url)) == 2
    assert slatewise("restore", copy, "--store", url, "--replace").stderr.endswith(f"3 users restored from {copy}\n")
    assert log_of(url) == before
    assert slatewise("verify", "--catalog", catalog, "--store", url).exit_code == 0


def test_an_export_can_be_restored(catalog: Path, url: str, tmp_path: Path) -> None:
    lines, again = tmp_path / "log.jsonl", f"sqlite:///{tmp_path / 'again.db'}"
    lines.write_text(slatewise("export", "--store", url).stdout)
    assert slatewise("restore", lines, "--store", again).exit_code == 0
    assert log_of(again) == log_of(url)
    assert slatewise("verify", "--catalog", catalog, "--store", again).exit_code == 0
    lines.write_text("not a line")
    refused = slatewise("restore", lines, "--store", again, "--replace")
    assert (refused.exit_code, "line 1 is nothing that" in refused.output) == (1, True)
    assert log_of(again) == log_of(url)


def test_what_cannot_be_backed_up_or_restored_is_said(url: str, tmp_path: Path) -> None:
    assert "pg_dump" in slatewise("backup", tmp_path / "x", "--store", "postgresql://h/d").output
    assert "no file" in slatewise("restore", tmp_path / "none", "--store", url).output
    assert slatewise("backup", tmp_path / "copy.db", "--store", url).exit_code == 0
    assert "export" in slatewise("restore", tmp_path / "copy.db", "--store", "postgresql://h/d").output
    assert "cannot be written" in slatewise("backup", tmp_path / "no" / "x", "--store", url).output
