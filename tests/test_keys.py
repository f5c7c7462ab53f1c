"""API keys: what is kept of them, when they open the service, and the command line that makes them."""

import json
import os
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slatewise.cli import app
from slatewise.service.keys import Key, KeyFileError, KeyRing, edit_keys, new_key, read_keys, write_keys
from tests.support.serving import key_file, local


def slatewise_keys(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


def test_a_key_is_long_random_and_kept_only_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = key_file(path, shop=("serve",))["shop"]
    assert text.startswith("swk_")
    assert len(text) == 4 + 8 + 43
    assert text[12:] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    drawn = {new_key("x", ["read"])[0][12:] for _ in range(200)}
    assert len(drawn) == 200
    assert {one[0] for one in drawn} != {text[12]}


def test_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key_file(tmp_path / "keys.json", shop=("serve",))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("scopes", [[], ["root"], ["serve", "everything"]])
def test_unknown_scopes(scopes: list[str]) -> None:
    with pytest.raises(KeyFileError, match="serve, read, items, admin"):
        new_key("x", scopes)


def test_only_the_whole_key_opens(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = key_file(path, shop=("serve",))["shop"]
    ring = KeyRing(path)
    assert ring.find(text) is not None
    other = "A" if text[-1] != "A" else "B"
    for wrong in (
        "",
        text[:-1],
        text + "A",
        text[:-1] + other,
        text[:12],
        text.upper(),
        f" {text}",
        text + "\n",
        "ü" * 55,
    ):
        assert ring.find(wrong) is None, wrong


def test_expired_and_revoked_keys_open_nothing(tmp_path: Path) -> None:
    path, now = tmp_path / "keys.json", [1000.0]
    text, key = new_key("shop", ["serve"], expires=2000.0)
    write_keys(path, [key])
    ring = KeyRing(path, lambda: now[0])
    assert ring.find(text) == key
    now[0] = 2000.0
    assert ring.find(text) is None
    write_keys(path, [replace(key, expires=None, revoked=1.0)])
    assert ring.find(text) is None
    assert ring.n_active == 0


def test_a_running_service_notices_changes_and_fails_closed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    old = key_file(path, old=("read",))["old"]
    with local(tmp_path) as service:

        def status(key: str) -> int:
            return service.client.get("/v1/catalog", headers={"x-api-key": key}).status_code

        assert status(old) == 200
        new = key_file(path, new=("read",))["new"]
        assert (status(old), status(new)) == (200, 200)
        whole = path.read_bytes()
        for damage in (b"", b"{", b'{"keys": 7}', b'{"keys": [{"id": "x"}]}', b"[" * 100_000):
            path.write_bytes(damage)
            assert (status(old), status(new)) == (401, 401), damage
        path.unlink()
        assert (status(old), status(new), service.client.get("/v1/catalog").status_code) == (401, 401, 401)
        path.write_bytes(whole)
        assert (status(old), status(new)) == (200, 200)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("[]", r"\(its content: input should be an object, with names and values\)"),
        ('{"keys": [3]}', r"\(keys/0: input should be an object, with names and values\)"),
        (
            '{"keys": [{"id": "x", "name": "", "scopes": ["all"], "sha256": "", "created": 0}]}',
            r"\(keys/0/id: text is not of the expected form\)",
        ),
    ],
)
def test_a_file_that_is_no_key_file_gets_a_plain_sentence(content: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(KeyFileError, match=rf"is not a key file {where}") as caught:
        read_keys(tmp_path / "keys.json")
    assert "^" not in str(caught.value)


def test_two_who_change_the_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add(number: int) -> None:
        for at in range(5):
            key_file(path, **{f"key{number}-{at}": ("read",)})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(path)) == 20


def test_without_the_lock_changes_are_lost(tmp_path: Path) -> None:
    """The negative control: read, wait, write."""
    path = tmp_path / "keys.json"
    write_keys(path, [])
    start = threading.Barrier(2)

    def add(name: str) -> None:
        known: list[Key] = read_keys(path)
        start.wait()
        write_keys(path, [*known, new_key(name, ["read"])[1]])

    threads = [threading.Thread(target=add, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(path)) == 1


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key_file(path, shop=("serve",))
    before = path.read_bytes()

    def change() -> None:
        with edit_keys(path) as known:
            known.clear()
            raise KeyFileError("no")

    with pytest.raises(KeyFileError):
        change()
    assert path.read_bytes() == before


def test_the_command_line_adds_lists_rotates_and_revokes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    added = slatewise_keys("add", "shop", "--scope", "serve", "--scope", "read", "--days", "30")
    assert added.exit_code == 0, added.output
    text = added.stdout.strip()
    ring = KeyRing(tmp_path / "keys.json")
    key = ring.find(text)
    assert key is not None
    assert key.scopes == ("serve", "read")
    assert key.expires == pytest.approx(time.time() + 30 * 86_400, abs=600)
    rotated = json.loads(slatewise_keys("rotate", key.id, "--json").stdout)
    assert ring.find(text) is None
    fresh = ring.find(rotated["key"])
    assert fresh is not None
    assert (fresh.name, fresh.scopes, fresh.expires) == (key.name, key.scopes, key.expires)
    listed = slatewise_keys("list", "--json").stdout
    assert [(row["id"], row["active"]) for row in json.loads(listed)] == [(key.id, False), (fresh.id, True)]
    assert text[12:] not in listed + slatewise_keys("list").stdout
    assert slatewise_keys("revoke", fresh.id).exit_code == 0
    assert ring.find(rotated["key"]) is None
    again = slatewise_keys("revoke", fresh.id)
    assert again.exit_code == 1
    assert "there is no active key" in again.output


def test_an_old_key_may_work_a_little_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = slatewise_keys("add", "shop", "--scope", "serve").stdout.strip()
    slatewise_keys("rotate", text[4:12], "--grace", "1")
    now = [time.time()]
    ring = KeyRing(tmp_path / "keys.json", lambda: now[0])
    assert ring.find(text) is not None
    now[0] += 3601
    assert ring.find(text) is None
