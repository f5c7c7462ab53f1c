import io
import json
import os
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slatewise.data import sources
from slatewise.data.dataset import DataError
from slatewise.data.download import Progress, pip_download
from slatewise.data.formats import LAYOUTS, Tables, measure, read_layout
from slatewise.data.sources import SOURCES, Fetched, cache_directory, fetch, load, local_copy
from tests.conftest import missing

Row = tuple[int, int, int, int]
ROWS: list[Row] = [
    (user, item, (user * item) % 5 + 1, 100 * user + item) for user in range(1, 30) for item in range(1, 20)
]
GENRES = ["unknown", "Action", "Comedy", "Drama"]


def flags(item: int) -> list[int]:
    return [0, item % 2, item % 3 == 0, 1]


def tabbed(rows: list[Row]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def grouplens_members(rows: list[Row]) -> dict[str, bytes]:
    items = (f"{i}|Film {i} (1999)|||" + "".join(f"|{int(flag)}" for flag in flags(i)) for i in range(1, 20))
    return {
        "u.data": tabbed(rows).encode(),
        "u.item": "\n".join(items).encode(),
        "u.genre": "".join(f"{name}|{place}\n" for place, name in enumerate(GENRES)).encode(),
    }


def recbole_members(rows: list[Row]) -> dict[str, bytes]:
    words = {i: " ".join(name for name, flag in zip(GENRES, flags(i), strict=True) if flag) for i in range(1, 20)}
    items = "".join(f"{i}\tFilm {i}\t1999\t{words[i]}\n" for i in range(1, 20))
    return {"ml-100k.inter": f"header\n{tabbed(rows)}".encode(), "ml-100k.item": f"header\n{items}".encode()}


def zipped(members: dict[str, bytes], folder: str = "ml-100k") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{folder}/{name}", content)
    return buffer.getvalue()


def archive_of(rows: list[Row]) -> bytes:
    return zipped(grouplens_members(rows))


def expected_tables() -> Tables:
    members = grouplens_members(ROWS)
    return LAYOUTS["ml-100k"].parse(*members.values())


class Elsewhere:
    """Stands for the network: what home and package index would send, and who was asked."""

    def __init__(self) -> None:
        self.home: bytes | None = None
        self.wheel: bytes | None = None
        self.asked: list[str] = []

    def download(self, url: str, target: Path, progress: Progress) -> None:
        self.asked.append(url)
        if self.home is None:
            raise DataError(f"{url}: unreachable")
        target.write_bytes(self.home)
        progress(len(self.home), len(self.home))

    def pip_download(self, requirement: str, directory: Path) -> Path:
        self.asked.append(requirement)
        if self.wheel is None:
            raise DataError(f"pip download {requirement} failed: unreachable")
        (directory / "recbole.whl").write_bytes(self.wheel)
        return directory / "recbole.whl"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """A small data set in the place of ml-100k, and no network but the one of the test."""
    network = Elsewhere()
    small = replace(SOURCES["ml-100k"], expected=measure(expected_tables()))
    monkeypatch.setitem(SOURCES, "ml-100k", small)
    monkeypatch.setattr(sources, "download", network.download)
    monkeypatch.setattr(sources, "pip_download", network.pip_download)
    return network


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory named by SLATEWISE_DATA."""
    directory = tmp_path / "data"
    directory.mkdir()
    monkeypatch.setenv("SLATEWISE_DATA", str(directory))
    return directory


def fetch_told() -> tuple[Fetched, list[str]]:
    told: list[str] = []
    fetched = fetch("ml-100k", told.append)
    assert fetched.tables.ratings.equals(expected_tables().ratings)
    assert fetched.tables.items.equals(expected_tables().items)
    assert fetched.digest == SOURCES["ml-100k"].expected.digest
    assert not any("\n" in line for line in told)
    return fetched, told


def refuse_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> Tables:
        pytest.fail("parsed although the cache has it")

    monkeypatch.setattr(sources, "read_layout", parse)


def everything_in_cache() -> list[str]:
    return sorted(str(path.relative_to(cache_directory())) for path in cache_directory().rglob("*"))


CACHED = ["ml-100k", "ml-100k/items.parquet", "ml-100k/manifest.json", "ml-100k/ratings.parquet"]


def test_sources_are_tried_in_order_and_each_failure_is_told(elsewhere: Elsewhere, data: Path) -> None:
    elsewhere.wheel = zipped(recbole_members(ROWS), "recbole/dataset_example/ml-100k")
    fetched, told = fetch_told()
    home = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
    assert fetched.origin == "the wheel recbole==1.2.1"
    assert elsewhere.asked == [home, "recbole==1.2.1"]
    assert told == [
        f"{data} (SLATEWISE_DATA) has neither ml-100k.zip nor a folder ml-100k",
        f"ml-100k is not in the cache {cache_directory()}",
        f"{home}: unreachable",
    ]
    assert everything_in_cache() == CACHED


def test_home_comes_before_the_wheel_and_shows_progress(elsewhere: Elsewhere) -> None:
    elsewhere.home = archive_of(ROWS)
    heard: list[int] = []
    fetched = fetch("ml-100k", progress=lambda done, _: heard.append(done))
    assert fetched.origin == elsewhere.asked[0] == SOURCES["ml-100k"].home
    assert heard == [len(elsewhere.home)]
    assert everything_in_cache() == CACHED


def test_the_directory_comes_first(elsewhere: Elsewhere, data: Path) -> None:
    (data / "ml-100k.zip").write_bytes(archive_of(ROWS))
    fetched, told = fetch_told()
    assert fetched.origin == str(data / "ml-100k.zip")
    assert (told, elsewhere.asked) == ([], [])


@pytest.mark.parametrize("folder", ["ml-100k", "ml-100k/ml-100k", "."])
def test_an_unpacked_folder_will_do(elsewhere: Elsewhere, data: Path, folder: str) -> None:
    (data / folder).mkdir(parents=True, exist_ok=True)
    for name, content in grouplens_members(ROWS).items():
        (data / folder / name).write_bytes(content)
    assert fetch_told()[1] == elsewhere.asked == []
    assert str(local_copy("ml-100k")).startswith(str(data))


@pytest.mark.usefixtures("elsewhere")
def test_any_faithful_copy_passes(data: Path) -> None:
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    (data / "ml-100k.zip").write_bytes(zipped(grouplens_members(shuffled), "another/name"))
    assert fetch_told()[1] == []


def damaged_copies() -> dict[str, tuple[bytes, str]]:
    changed = [(*ROWS[0][:2], 6 - ROWS[0][2], ROWS[0][3]), *ROWS[1:]]
    without_items = {**grouplens_members(ROWS), "u.item": b"1|Film 1 (1999)||||0|1|0|1\n"}
    whole = archive_of(ROWS)
    return {
        "one rating changed": (archive_of(changed), "{name} is damaged: expected ratings with the digest"),
        "one row missing": (archive_of(ROWS[1:]), "{name} is damaged: expected 551 ratings, found 550"),
        "one row twice": (archive_of([*ROWS[:-1], ROWS[0]]), "{name} is damaged: expected ratings with the digest"),
        "items missing": (zipped(without_items), "{name} is damaged: 18 of 19 rated items"),
        "half an archive": (whole[: len(whole) // 2], "ml-100k.zip is damaged or not a zip archive"),
    }


@pytest.mark.parametrize("damage", list(damaged_copies()))
def test_a_damaged_copy_is_refused_by_name_and_the_next_source_tried(
    elsewhere: Elsewhere, data: Path, damage: str
) -> None:
    content, message = damaged_copies()[damage]
    (data / "ml-100k.zip").write_bytes(content)
    elsewhere.home = archive_of(ROWS)
    fetched, told = fetch_told()
    assert message.format(name=f"ml-100k from {data / 'ml-100k.zip'}") in told[0]
    assert len(told) == 2
    assert fetched.origin == SOURCES["ml-100k"].home


def test_damage_is_seen_in_downloads_too(elsewhere: Elsewhere) -> None:
    elsewhere.home = archive_of(ROWS[1:])
    elsewhere.wheel = zipped(recbole_members(ROWS[2:]))
    with pytest.raises(DataError) as caught:
        fetch("ml-100k", lambda _: None)
    assert f"ml-100k from {SOURCES['ml-100k'].home} is damaged: expected 551 ratings, found 550" in str(caught.value)
    assert "ml-100k from the wheel recbole==1.2.1 is damaged: expected 551" in str(caught.value)
    assert everything_in_cache() == []


def test_when_all_fails_every_attempt_and_the_way_out_are_listed(elsewhere: Elsewhere, data: Path) -> None:
    told: list[str] = []
    with pytest.raises(DataError) as caught:
        fetch("ml-100k", told.append)
    assert len(told) == len(elsewhere.asked) + 2 == 4
    for line in (*told, "ml-100k.zip", str(data), "set SLATEWISE_DATA"):
        assert line in str(caught.value)


def test_kaggle_sets_say_which_file_to_put_where() -> None:
    with pytest.raises(DataError, match=r"sign in.*kaggle\.com.*rating\.csv.*as anime\.zip.*SLATEWISE_DATA"):
        fetch("anime", lambda _: None)
    with pytest.raises(DataError, match=r"not published.*anime-5k\.zip.*SLATEWISE_DATA"):
        fetch("anime-5k", lambda _: None)


@pytest.mark.usefixtures("elsewhere")
def test_a_second_copy_is_tried_when_the_first_is_damaged(data: Path) -> None:
    (data / "ml-100k.zip").write_bytes(b"broken")
    (data / "ml-100k").mkdir()
    for name, content in grouplens_members(ROWS).items():
        (data / "ml-100k" / name).write_bytes(content)
    fetched, told = fetch_told()
    assert fetched.origin == str(data / "ml-100k")
    assert len(told) == 1


@pytest.mark.usefixtures("elsewhere")
def test_the_cache_saves_parsing_while_its_origin_stays(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = data / "ml-100k.zip"
    archive.write_bytes(archive_of(ROWS))
    fetch_told()
    with monkeypatch.context() as context:
        refuse_to_parse(context)
        fetched, told = fetch_told()
        assert fetched.origin == f"{cache_directory() / 'ml-100k'} (cache of {archive})"
        assert told == []
    archive.write_bytes(zipped(grouplens_members(ROWS), "other"))
    assert fetch_told()[0].origin == str(archive)


@pytest.mark.usefixtures("elsewhere")
def test_the_cache_serves_without_any_archive(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "ml-100k.zip").write_bytes(archive_of(ROWS))
    fetch_told()
    monkeypatch.delenv("SLATEWISE_DATA")
    refuse_to_parse(monkeypatch)
    assert fetch_told()[1] == []


@pytest.mark.parametrize("victim", ["ratings.parquet", "items.parquet", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "remove"])
@pytest.mark.usefixtures("elsewhere")
def test_a_damaged_cache_is_told_and_made_again(
    data: Path, victim: str, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "ml-100k.zip").write_bytes(archive_of(ROWS))
    fetch_told()
    path = cache_directory() / "ml-100k" / victim
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = bytes([*content[:middle], content[middle] ^ 255, *content[middle + 1 :]])
    path.write_bytes({"flip": flipped, "cut": content[:middle]}.get(harm, b""))
    if harm == "remove":
        path.unlink()
    told = fetch_told()[1]
    assert len(told) == (0 if (harm, victim) == ("remove", "manifest.json") else 1)
    assert all(victim in line or "another version" in line for line in told)
    refuse_to_parse(monkeypatch)
    assert fetch_told()[1] == []


@pytest.mark.parametrize("change", [{"format": 0}, {"digest": "0" * 64}, {"files": []}, {"files": {}}])
def test_a_cache_of_another_version_is_left_aside(elsewhere: Elsewhere, change: dict[str, object]) -> None:
    elsewhere.home = archive_of(ROWS)
    fetch_told()
    path = cache_directory() / "ml-100k" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    fetched, told = fetch_told()
    assert len(told) == 1
    assert fetched.origin == SOURCES["ml-100k"].home


def test_a_cache_that_cannot_be_written_costs_one_line(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLATEWISE_CACHE", str(tmp_path / "file" / "cache"))
    elsewhere.home = archive_of(ROWS)
    fetched, told = fetch_told()
    assert fetched.origin == SOURCES["ml-100k"].home
    assert told[1:] == [
        f"cannot write the cache {tmp_path / 'file' / 'cache'} (Not a directory); "
        f"set SLATEWISE_CACHE to another directory"
    ]


def test_a_full_disk_leaves_no_half_entry(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    elsewhere.home = archive_of(ROWS)
    monkeypatch.setattr(os, "fsync", fsync)
    told = fetch_told()[1]
    assert told[1].startswith("cannot write the cache")
    assert "(No space left on device)" in told[1]
    assert everything_in_cache() == ["ml-100k"]


@pytest.mark.usefixtures("elsewhere")
def test_at_hand_means_without_the_network(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_copy("ml-100k") is None
    (data / "ml-100k.zip").write_bytes(archive_of(ROWS))
    assert local_copy("ml-100k") == str(data / "ml-100k.zip")
    fetch_told()
    monkeypatch.delenv("SLATEWISE_DATA")
    assert local_copy("ml-100k") == f"{cache_directory() / 'ml-100k'} (cache)"


def test_an_unknown_name_lists_the_known_ones() -> None:
    for function in (fetch, load, local_copy):
        with pytest.raises(DataError, match="no data set 'ml-2m'; choose one of ml-100k, ml-1m, anime, anime-5k"):
            function("ml-2m")


def test_the_cache_directory_is_the_platforms_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATEWISE_CACHE", "~/somewhere")
    assert cache_directory() == Path.home() / "somewhere"
    monkeypatch.delenv("SLATEWISE_CACHE")
    assert cache_directory().name == "slatewise"


def test_the_full_anime_set_is_known_by_its_counts_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = b"user_id,anime_id,rating\n1,1,8\n1,1,8\n1,2,-1\n2,1,7\n2,3,5\n1,1,9\n"
    items = b'anime_id,name,genre\n1,A,"Action, Drama"\n2,B,\n3,C,Drama\n'
    tables = LAYOUTS["anime"].parse(ratings, items)
    counted = replace(measure(tables), digest=None)
    monkeypatch.setitem(SOURCES, "anime", replace(SOURCES["anime"], expected=counted))
    (data / "archive.zip").write_bytes(zipped({"rating.csv": ratings, "anime.csv": items}))
    dataset = load("anime", pytest.fail)
    assert (dataset.n_users, dataset.n_items, dataset.n_interactions, dataset.n_categories) == (2, 1, 2, 2)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("ml-100k", (942, 1_447, 55_375, 18, 0.0406)),
        ("ml-1m", (6_038, 3_533, 575_281, 18, 0.0270)),
        ("anime-5k", (4_704, 6_482, 345_717, 43, 0.0113)),
    ],
)
def test_real_data_gives_the_papers_table(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, name: str, row: tuple[int | float, ...]
) -> None:
    monkeypatch.setenv("SLATEWISE_DATA", str(real_data))
    for _ in ("from the archive", "from the cache"):
        dataset = load(name, pytest.fail)
        found = (dataset.n_users, dataset.n_items, dataset.n_interactions, dataset.n_categories)
        assert (*found, round(dataset.density, 4)) == row
        refuse_to_parse(monkeypatch)


def test_one_changed_rating_in_a_million_is_seen(real_data: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = read_layout(real_data / "ml-1m.zip", LAYOUTS["ml-1m"])
    values = tables.ratings["rating"].to_numpy().copy()
    values[777_777] = 6 - values[777_777] if values[777_777] != 3 else 4
    changed = Tables(tables.ratings.with_columns(rating=values), tables.items)
    assert np.count_nonzero(values != tables.ratings["rating"].to_numpy()) == 1
    monkeypatch.setattr(sources, "read_layout", lambda *_: changed)
    monkeypatch.setattr(sources, "download", Elsewhere().download)
    (data / "ml-1m.zip").touch()
    with pytest.raises(DataError, match=r"ml-1m from .*ml-1m\.zip is damaged: expected ratings with the digest"):
        fetch("ml-1m", lambda _: None)


@pytest.mark.process
def test_the_wheel_carries_the_same_data_as_grouplens(real_data: Path, tmp_path: Path) -> None:
    try:
        wheel = pip_download(str(SOURCES["ml-100k"].wheel), tmp_path, timeout=60)
    except DataError as error:
        missing(f"a package index ({error})")
    carried, original = (
        read_layout(wheel, LAYOUTS["recbole"]),
        read_layout(real_data / "ml-100k.zip", LAYOUTS["ml-100k"]),
    )
    assert carried.ratings.equals(original.ratings)
    assert carried.items.equals(original.items)
