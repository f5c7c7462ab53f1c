"""Settings: flags before environment before file; mistakes are named in one sentence without secrets."""

import json
import resource
from pathlib import Path

import pytest

from slatewise.recommender.types import PolicyShare
from slatewise.service.keys import new_key, write_keys
from slatewise.service.server import allow_files, check, dump_settings, make_recommender
from slatewise.service.settings import BadSettingsError, Settings, is_loopback, load_settings
from tests.support.serving import small_catalog

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
    assert (found.port, shares(found)) == (2, {"dc2b-calibrated": 0.9, "popular": 0.1})


def shares(settings: Settings) -> dict[str, float]:
    return {name: entry.share for name, entry in settings.policies.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("popular", {"popular": 1.0}), ("dc2b=0.25, popular=0.75", {"dc2b": 0.25, "popular": 0.75})],
)
def test_shares_as_text(text: str, expected: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares(load_settings({"catalog": "c", "policies": text})) == expected
    monkeypatch.setenv("SLATEWISE_POLICIES", text)
    monkeypatch.setenv("SLATEWISE_ALLOWED_HOSTS", "a.example, B.example")
    found = load_settings({"catalog": "c"})
    assert (shares(found), found.allowed_hosts) == (expected, ("a.example", "b.example"))


TABLE = """
catalog = "catalog"
store = "memory://"
[policies]
popular = 0.1
[policies.dc2b-calibrated]
share = 0.5
[policies.bold]
policy = "dc2b"
share = 0.4
options = { temperature = 0 }
"""


def test_a_table_of_policies_with_options() -> None:
    """Shares alone, a policy named after its entry, and a policy with options under a name of its own."""
    Path("slatewise.toml").write_text(TABLE)
    settings = load_settings({})
    assert settings.policy_shares() == {
        "popular": PolicyShare("popular", 0.1),
        "dc2b-calibrated": PolicyShare("dc2b-calibrated", 0.5, {"explore": 0.5}),
        "bold": PolicyShare("dc2b", 0.4, {"temperature": 0}),
    }
    small_catalog().save("catalog")
    with make_recommender(settings) as recommender:
        assert recommender.shares == {"popular": 0.1, "dc2b-calibrated": 0.5, "bold": 0.4}
        assert recommender.recommend("anna", policy="bold").policy == "bold"


SECRET = "hunter2-secret"  # noqa: S105
MISTAKES = {
    "unknown key": ('catalog = "c"\nprot = 1', "sets 'prot', which is not a setting; choose from: catalog, store"),
    "unknown table": ('catalog = "c"\n[prot]\nx = 1', "sets 'prot', which is not a setting"),
    "not TOML": ("catalog = ", "is not a TOML file"),
    "wrong type": (
        'catalog = "c"\nport = "many"',
        "the setting 'port' cannot be used: input should be a valid integer",
    ),
    "out of range": ('catalog = "c"\nport = 70000', "the setting 'port' cannot be used"),
    "not a list": ('catalog = "c"\nallowed_hosts = 5', "the setting 'allowed_hosts' cannot be used"),
    "no catalog": ("port = 1", "no catalog is given; use --catalog DIR"),
    "replaced": (
        'catalog = "c"\nbody_timeout = 1',
        "no longer needed: request_timeout limits the time of a whole request",
    ),
    "removed": ('catalog = "c"\nchooser = true', "sets 'chooser', which is no longer needed: slates are now chosen in"),
    "unknown key of a policy": (
        'catalog = "c"\n[policies.main]\nshares = 1',
        "sets 'policies.main.shares', which is not a setting; choose from: policy, share, options",
    ),
    "unknown key of a scenario": (
        'catalog = "c"\n[scenarios.home]\nfilters = "stock > 0"',
        "sets 'scenarios.home.filters', which is not a setting; choose from: filter, boost, pin, at_most, at_least, ",
    ),
    "unknown key of a scenario with the name of a rule": (
        'catalog = "c"\n[scenarios.pin]\nfilters = "stock > 0"',
        "sets 'scenarios.pin.filters', which is not a setting; choose from: filter, boost, pin, at_most, at_least, ",
    ),
    "unknown key of a rule": (
        'catalog = "c"\n[scenarios.home]\nat_most = [{ n = 2, by = "brand", per = "brand" }]',
        "sets 'scenarios.home.at_most.0.by', which is not a setting; choose from: n, per",
    ),
    "unknown key of the experiment": (
        'catalog = "c"\n[experiment]\nname = "autumn"\nhold_out = 0.1',
        "sets 'experiment.hold_out', which is not a setting; choose from: name, control, holdout, effect, running",
    ),
    "unknown key of the shadow": (
        'catalog = "c"\n[shadow]\npolicies = "dc2b"',
        "sets 'shadow.policies', which is not a setting; choose from: policy, share, options",
    ),
    "wrong share": (
        'catalog = "c"\n[policies]\npopular = "many"',
        "the setting 'policies.popular.share' cannot be used: input should be a valid number",
    ),
    "impossible experiment": (
        'catalog = "c"\n[experiment]\nname = "autumn"\nholdout = 2.0',
        "the setting 'experiment' cannot be used: holdout is 2.0; give a share of users from 0 to 1",
    ),
    "not a table": (
        'catalog = "c"\nexperiment = 3',
        "the setting 'experiment' cannot be used: input should be an object, with names and values",
    ),
    "secret of a wrong type": (f'catalog = "c"\nstore = ["{SECRET}"]', "the setting 'store' cannot be used"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(text: str, message: str) -> None:
    Path("slatewise.toml").write_text(text)
    with pytest.raises(BadSettingsError) as caught:
        load_settings({})
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            "SLATEWISE_HEADER_TIMEOUT",
            "sets SLATEWISE_HEADER_TIMEOUT, which is no longer needed: request_timeout limits",
        ),
        ("slatewise_body_timeout", "sets slatewise_body_timeout, which is no longer needed: request_timeout limits"),
        ("SLATEWISE_CHOOSER", "sets SLATEWISE_CHOOSER, which is no longer needed: slates are now chosen in threads"),
    ],
)
def test_a_variable_of_an_earlier_version_is_refused(
    variable: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that never were settings are not ours to judge; that the settings load with one is the control."""
    monkeypatch.setenv("SLATEWISE_URL", "http://127.0.0.1")
    assert load_settings({"catalog": "c"}).request_timeout == 10.0
    monkeypatch.setenv(variable, SECRET)
    with pytest.raises(BadSettingsError, match=message) as caught:
        load_settings({"catalog": "c"})
    assert SECRET not in str(caught.value)


def test_a_named_file_must_exist() -> None:
    with pytest.raises(BadSettingsError, match=r"gone\.toml does not exist; check --config"):
        load_settings({"catalog": "c"}, Path("gone.toml"))


def test_secrets_are_not_printed() -> None:
    found = load_settings({"catalog": "c", "store": f"postgresql://me:{SECRET}@db/x", "log_salt": SECRET})
    assert SECRET not in repr(found) + str(found) + found.model_dump_json()
    assert found.store_kind == "postgresql"


def test_workers_get_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {"popular": 0.5, "bold": {"policy": "dc2b", "share": 0.5, "options": {"temperature": 0}}}
    found = load_settings({"catalog": "c", "store": f"postgresql://me:{SECRET}@db/x", "policies": policies})
    monkeypatch.setenv("SLATEWISE_PORT", "9")
    received = Settings(**json.loads(dump_settings(found)))
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
    refusal = r"there is no active API key; create one with `slatewise keys add"
    with pytest.raises(BadSettingsError, match=refusal):
        check(settings)
    _, key = new_key("old", ["serve"], expires=1.0)
    write_keys(settings.keys, [key])
    with pytest.raises(BadSettingsError, match=refusal):
        check(settings)
    write_keys(settings.keys, [key, new_key("new", ["serve"])[1]])
    check(settings)


def test_as_many_files_as_connections_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is raised, never lowered; where that is not allowed, the setting is refused."""
    allowed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: allowed.append(limits))
    for now, most in ((1024, 4096), (1024, 2000), (50_000, 50_000), (1024, resource.RLIM_INFINITY)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(now, most): limits)
        allow_files(1000)
    assert allowed == [(3348, 4096), (2000, 2000), (50_000, 50_000), (3348, resource.RLIM_INFINITY)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(BadSettingsError, match="1000 connections need 1300 open files, but this process may have 1024"):
        allow_files(1000)


def test_a_key_file_that_is_named_must_exist() -> None:
    with pytest.raises(BadSettingsError, match=r"typo\.json does not exist"):
        check(load_settings({"catalog": "c", "keys": "typo.json"}))
    check(load_settings({"catalog": "c"}))


@pytest.mark.parametrize("store", ["sqlite:///slates.db", "memory://"])
def test_several_workers_only_with_postgresql(store: str) -> None:
    with pytest.raises(BadSettingsError, match="2 workers require a postgresql:// store"):
        check(load_settings({"catalog": "c", "workers": 2, "store": store}))
    check(load_settings({"catalog": "c", "workers": 2, "store": "postgresql://db/x"}))
