"""What the service neither starts nor goes on with: names for others without keys, wrong manifests and key files."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.cli.console import warn_of_password
from slatewise.service.keys import KeyFileError, edit_keys, read_keys
from slatewise.service.server import check
from slatewise.service.settings import BadSettingsError, load_settings
from tests.support.serving import key_file, local, new_slate, reload, small_catalog

WRONG: list[Any] = [None, True, 7, -1.5, "x", [], ["x"], {}, {"x": 1}]


def variants(whole: Any) -> Iterator[Any]:
    """The same document with one of its parts missing, or of another type, at any depth."""
    if isinstance(whole, dict):
        for name, part in whole.items():
            yield {key: value for key, value in whole.items() if key != name}
            for changed in (*variants(part), *WRONG):
                yield {**whole, name: changed}


def sign(manifest: dict[str, Any]) -> str:
    """Correct a manifest's own hash, as somebody would who has changed it on purpose."""
    content = {name: part for name, part in manifest.items() if name != "sha256"}
    return json.dumps({**content, "sha256": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()})


def test_a_manifest_with_missing_or_wrong_parts_is_refused_in_words(tmp_path: Path) -> None:
    small_catalog().save(tmp_path)
    path = tmp_path / "catalog.json"
    refusals = []
    for changed in variants(json.loads(path.read_text())):
        path.write_text(sign(changed))
        try:
            assert repr(Catalog.load(tmp_path)).startswith("Catalog(60 items")
        except CatalogError as error:
            refusals.append(str(error))
    assert len(refusals) > 60
    assert all(str(tmp_path) in refusal or "manifest" in refusal for refusal in refusals)


def test_a_reload_refuses_such_a_manifest_and_goes_on(tmp_path: Path) -> None:
    with local(tmp_path) as service:
        path = tmp_path / "catalog" / "catalog.json"
        whole = json.loads(path.read_text())
        for changed in variants(whole):
            path.write_text(sign(changed))
            answer = reload(service)
            assert answer.status_code in (200, 409), (answer.text, changed)
        path.write_text(sign(whole))
        assert reload(service).status_code == 200
        assert new_slate(service)["items"]
        assert service.client.get("/v1/catalog").status_code == 200
        assert not [line for line in service.lines if line["event"] == "failure"]


@pytest.mark.parametrize("part", ["id", "name", "scopes", "sha256", "created"])
def test_a_key_file_with_missing_or_wrong_parts_is_refused_in_words(tmp_path: Path, part: str) -> None:
    """Nothing but the text and the types of a key: neither at the start nor while the service runs does it fail."""
    path = tmp_path / "keys.json"
    key_file(path, shop=("serve",))
    [entry] = json.loads(path.read_text())["keys"]
    for changed in (*WRONG, "missing"):
        wrong = {**entry, part: changed} if changed != "missing" else {k: v for k, v in entry.items() if k != part}
        if wrong == entry or (part == "name" and changed == "x") or (part == "created" and changed in (7, -1.5)):
            continue
        path.write_text(json.dumps({"keys": [wrong]}))
        with pytest.raises(KeyFileError, match=r"keys\.json is not a key file") as caught:
            read_keys(path)
        assert part in str(caught.value)
        assert entry["sha256"] not in str(caught.value)


@pytest.mark.parametrize("part", ["expires", "revoked"])
@pytest.mark.parametrize("changed", ["tomorrow", [], True])
def test_a_wrong_key_file_opens_nothing_and_is_logged(
    tmp_path: Path, part: str, changed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    key = key_file(path, shop=("read",))["shop"]
    with local(tmp_path) as service:
        headers = {"x-api-key": key}
        assert service.client.get("/v1/catalog", headers=headers).status_code == 200
        [entry] = json.loads(path.read_text())["keys"]
        path.write_text(json.dumps({"keys": [{**entry, part: changed}]}))
        assert service.client.get("/v1/catalog", headers=headers).status_code == 401
        path.write_text(json.dumps({"keys": [entry]}))
        assert service.client.get("/v1/catalog", headers=headers).status_code == 200
    assert [record.getMessage() for record in caplog.records if "is not a key file" in record.getMessage()]


def test_a_lock_of_keys_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / ".keys.json.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), edit_keys(tmp_path / "keys.json"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_names_by_which_others_call_need_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name means a proxy or another machine, even where the service itself listens on loopback."""
    monkeypatch.chdir(tmp_path)
    open_to_all = load_settings({"catalog": "c", "allowed_hosts": "shop.example"})
    with pytest.raises(BadSettingsError, match=r"allowed_hosts lets others in, but there is no active API key"):
        check(open_to_all)
    check(load_settings({"catalog": "c", "allowed_hosts": "localhost,127.0.0.1"}))
    key_file(tmp_path / "keys.json", shop=("serve",))
    check(open_to_all)


URLS = [
    ("postgresql://me:secret@db/x", True),
    ("postgresql://me@db/x?password=secret", True),
    ("postgresql://me@db/x", False),
    ("sqlite:///a:b@c.db", False),
]


@pytest.mark.parametrize(("url", "warns"), URLS)
def test_a_password_in_the_process_list_is_warned_of(
    url: str, warns: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, where everybody on the machine can read it; not if it comes from the environment."""
    for arguments, is_visible in ((["--store", url], True), ([f"--store={url}"], True), ([], False)):
        monkeypatch.setattr(sys, "argv", ["slatewise", "serve", *arguments])
        assert warn_of_password(url) == url
        told = capsys.readouterr().err
        assert ("SLATEWISE_STORE" in told and "PGPASSFILE" in told) == (warns and is_visible)
        assert "secret" not in told
