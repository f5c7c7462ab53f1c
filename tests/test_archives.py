import io
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.data.archives import read_member, stamp
from slatewise.data.dataset import DataError

CAP = 100_000
CONTENT = b"196\t242\t3\t881250949\n" * 500


def zipped(**members: bytes) -> bytes:
    return zipped_paths({name.replace("_", "."): content for name, content in members.items()})


def zipped_paths(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return buffer.getvalue()


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def everything_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("inside", ["u.data", "ml-100k/u.data", "any/folder/at/all/u.data", "windows\\u.data"])
def test_a_member_is_found_wherever_it_lies(tmp_path: Path, inside: str) -> None:
    path = save(tmp_path / "a.zip", zipped_paths({"README": b"x", inside: CONTENT, "notu.data": b"no"}))
    assert read_member(path, "u.data", CAP) == CONTENT


def test_of_several_members_the_shortest_path_counts_and_apple_shadows_never(tmp_path: Path) -> None:
    members = {"a/b/u.data": b"deeper", "__MACOSX/u.data": b"shadow", "__MACOSX/ml/u.item": b"shadow"}
    path = save(tmp_path / "a.zip", zipped_paths({**members, "ml/u.data": CONTENT, "z/z/z/u.data": b"deepest"}))
    assert read_member(path, "u.data", CAP) == CONTENT
    with pytest.raises(DataError, match=r"a\.zip has no file u\.item; is it the right archive\?"):
        read_member(path, "u.item", CAP)


@pytest.mark.parametrize("inside", ["../../u.data", "/etc/u.data", "..\\..\\u.data", "C:\\u.data"])
def test_paths_in_an_archive_have_no_power(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    path = save(folder / "a.zip", zipped_paths({inside: CONTENT}))
    assert read_member(path, "u.data", CAP) == CONTENT
    assert everything_under(tmp_path) == ["one", "one/two", "one/two/a.zip"]


def test_a_zip_bomb_does_not_go_off(tmp_path: Path) -> None:
    path = save(tmp_path / "bomb.zip", zipped(u_data=bytes(50 * CAP)))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"u\.data in .*bomb\.zip is larger than 100,000 bytes"):
        read_member(path, "u.data", CAP)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * CAP
    assert len(read_member(path, "u.data", 50 * CAP)) == 50 * CAP


def test_a_header_that_lies_about_the_size_does_not_help_the_bomb(tmp_path: Path) -> None:
    honest = zipped(u_data=bytes(50 * CAP))
    lying = honest.replace((50 * CAP).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lying != honest
    with pytest.raises(DataError, match=r"bomb\.zip"):
        read_member(save(tmp_path / "bomb.zip", lying), "u.data", CAP)


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    whole = zipped(u_data=CONTENT)
    for broken in (b"", b"no zip at all", whole[: len(whole) // 2], whole[:-30]):
        with pytest.raises(DataError, match=r"broken\.zip is damaged or not a zip archive"):
            read_member(save(tmp_path / "broken.zip", broken), "u.data", CAP)
    with pytest.raises(DataError, match=r"none\.zip does not exist"):
        read_member(tmp_path / "none.zip", "u.data", CAP)


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_the_content_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    flipped = bytearray(zipped(u_data=CONTENT))
    flipped[place % len(flipped)] ^= 1 << bit
    path = save(tmp_path_factory.getbasetemp() / "flipped.zip", bytes(flipped))
    try:
        outcome = read_member(path, "u.data", CAP)
    except DataError as error:
        outcome = str(error).encode()
    assert outcome == CONTENT or (b"flipped.zip" in outcome and b"\n" not in outcome)


def test_a_folder_is_read_one_level_deep(tmp_path: Path) -> None:
    (tmp_path / "ml" / "too" / "deep").mkdir(parents=True)
    save(tmp_path / "ml" / "u.data", CONTENT)
    save(tmp_path / "ml" / "too" / "u.item", b"item")
    save(tmp_path / "ml" / "too" / "deep" / "u.genre", b"genre")
    assert read_member(tmp_path / "ml", "u.data", CAP) == CONTENT
    assert read_member(tmp_path / "ml", "u.item", CAP) == b"item"
    with pytest.raises(DataError, match=r"the folder .*ml has no file u\.genre"):
        read_member(tmp_path / "ml", "u.genre", CAP)
    with pytest.raises(DataError, match=r"u\.data is larger than 99 bytes"):
        read_member(tmp_path / "ml", "u.data", 99)


def test_links_may_stay_in_the_folder_but_not_leave_it(tmp_path: Path) -> None:
    folder = tmp_path / "ml"
    folder.mkdir()
    save(tmp_path / "secret", b"secret")
    save(folder / "real", CONTENT)
    (folder / "u.data").symlink_to(folder / "real")
    (folder / "u.item").symlink_to(tmp_path / "secret")
    assert read_member(folder, "u.data", CAP) == CONTENT
    with pytest.raises(DataError, match=r"u\.item is a link that leads out of"):
        read_member(folder, "u.item", CAP)
    (tmp_path / "outside").mkdir()
    save(tmp_path / "outside" / "u.genre", b"secret")
    (folder / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=r"u\.genre is a link that leads out of"):
        read_member(folder, "u.genre", CAP)


def test_a_stamp_tells_copies_apart(tmp_path: Path) -> None:
    path = save(tmp_path / "a.zip", zipped(u_data=CONTENT))
    first = stamp(path, ("u.data",))
    assert first == stamp(path, ("u.data",))
    assert first == {"name": "a.zip", "size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns}
    save(path, zipped(u_data=CONTENT + b"1"))
    assert stamp(path, ("u.data",)) != first
    (tmp_path / "ml").mkdir()
    save(tmp_path / "ml" / "u.data", CONTENT)
    folder = stamp(tmp_path / "ml", ("u.data", "u.item"))
    assert folder["size"] == len(CONTENT)
    save(tmp_path / "ml" / "u.item", b"1|")
    assert stamp(tmp_path / "ml", ("u.data", "u.item"))["size"] == len(CONTENT) + 2
