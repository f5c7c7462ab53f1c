"""Settings: flags before environment before file; what cannot be is refused in one sentence without secrets."""

import os
from pathlib import Path

import pytest

from slatewise.service.keys import new_key, write_keys
from slatewise.service.server import check
from slatewise.service.settings import BadSettingsError, Settings, is_loopback, load_settings
from slatewise.service.workers import handed_down

EVERYWHERE = "0.0.0.0"  # noqa: S104


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_win_over_environment_and_environment_over_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("slatewise.toml").write_text(
        'catalog = "file"\nport = 1\nworkers = 2\nseed = 3\nallowed_hosts = ["A.example"]\n'
    )
    monkeypatch.setenv("SLATEWISE_PORT", "10")
    monkeypatch.setenv("SLATEWISE_WORKERS", "20")
    found = load_settings({"port": 11, "workers": None})
    assert (found.port, found.workers, found.seed, found.catalog) == (11, 20, 3, Path("file"))
    assert found.allowed_hosts == ("a.example",)
    assert found.burst == Settings.model_fields["burst"].default


def test_a_named_file_is_read_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLATEWISE_PORT", raising=False)
    Path("slatewise.toml").write_text("port = 1\n")
    Path("other.toml").write_text('catalog = "c"\nport = 2\n[policies]\n"dc2b-calibrated" = 0.9\npopular = 0.1\n')
    found = load_settings({}, Path("other.toml"))
    assert (found.port, found.policies) == (2, {"dc2b-calibrated": 0.9, "popular": 0.1})


@pytest.mark.parametrize(
    ("text", "shares"),
    [("popular", {"popular": 1.0}), ("dc2b=0.25, popular=0.75", {"dc2b": 0.25, "popular": 0.75})],
)
def test_shares_as_text(text: str, shares: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({"catalog": "c", "policies": text}).policies == shares
    monkeypatch.setenv("SLATEWISE_POLICIES", text)
    monkeypatch.setenv("SLATEWISE_ALLOWED_HOSTS", "a.example, B.example")
    found = load_settings({"catalog": "c"})
    assert (found.policies, found.allowed_hosts) == (shares, ("a.example", "b.example"))


SECRET = "hunter2-secret"  # noqa: S105
MISTAKES = {
    "unknown key": ('catalog = "c"\nprot = 1', "sets 'prot', which is no setting; settings are: catalog, store"),
    "unknown table": ('catalog = "c"\n[prot]\nx = 1', "sets 'prot', which is no setting"),
    "not TOML": ("catalog = ", "is not a TOML file"),
    "wrong type": (
        'catalog = "c"\nport = "many"',
        "the setting 'port' cannot be used: input should be a valid integer",
    ),
    "out of range": ('catalog = "c"\nport = 70000', "the setting 'port' cannot be used"),
    "not a list": ('catalog = "c"\nallowed_hosts = 5', "the setting 'allowed_hosts' cannot be used"),
    "no catalogue": ("port = 1", "no catalogue is named; give --catalog DIR"),
    "secret of a wrong type": (f'catalog = "c"\nstore = ["{SECRET}"]', "the setting 'store' cannot be used"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(text: str, message: str) -> None:
    Path("slatewise.toml").write_text(text)
    with pytest.raises(BadSettingsError) as caught:
        load_settings({})
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_named_file_must_exist() -> None:
    with pytest.raises(BadSettingsError, match=r"gone\.toml does not exist; check --config"):
        load_settings({"catalog": "c"}, Path("gone.toml"))


def test_secrets_are_not_printed() -> None:
    found = load_settings({"catalog": "c", "store": f"postgresql://me:{SECRET}@db/x", "log_salt": SECRET})
    assert SECRET not in repr(found) + str(found) + found.model_dump_json()
    assert found.store_kind == "postgresql"


def test_workers_get_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    found = load_settings(
        {"catalog": "c", "store": f"postgresql://me:{SECRET}@db/x", "policies": "dc2b=0.5,popular=0.5"}
    )
    monkeypatch.setenv("SLATEWISE_PORT", "9")
    received = Settings(**json.loads(handed_down(found)))
    assert received.store == found.store
    assert received.model_dump(exclude={"log_salt"}) == found.model_dump(exclude={"log_salt"})
    assert received.log_salt is not None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), (EVERYWHERE, False), ("::", False),
     ("10.0.0.1", False), ("shop.example", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_beyond_loopback_only_with_an_active_key() -> None:
    settings = load_settings({"catalog": "c", "host": EVERYWHERE})
    refusal = r"there is no active API key; make one with `slatewise keys add"
    with pytest.raises(BadSettingsError, match=refusal):
        check(settings)
    _, key = new_key("old", ["serve"], expires=1.0)
    write_keys(settings.keys, [key])
    with pytest.raises(BadSettingsError, match=refusal):
        check(settings)
    write_keys(settings.keys, [key, new_key("new", ["serve"])[1]])
    check(settings)


def test_a_file_of_keys_that_is_named_must_exist() -> None:
    with pytest.raises(BadSettingsError, match=r"typo\.json does not exist"):
        check(load_settings({"catalog": "c", "keys": "typo.json"}))
    check(load_settings({"catalog": "c"}))


@pytest.mark.parametrize("store", ["sqlite:///slates.db", "memory://"])
def test_several_workers_only_with_postgresql(store: str) -> None:
    with pytest.raises(BadSettingsError, match="2 workers need a postgresql:// store"):
        check(load_settings({"catalog": "c", "workers": 2, "store": store}))
    check(load_settings({"catalog": "c", "workers": 2, "store": "postgresql://db/x"}))


@pytest.mark.parametrize(
    ("cores", "workers", "chooser", "expected"),
    [(2, 1, None, True), (1, 1, None, False), (8, 4, None, False), (1, 4, True, True), (8, 1, False, False)],
)
def test_a_second_process_chooses_where_one_worker_has_two_cores(
    cores: int, workers: int, chooser: bool | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLATEWISE_CHOOSER", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert Settings(catalog=Path(), workers=workers, chooser=chooser).chooses_beside is expected
