"""The demo as a newcomer starts it: one command, a page that learns, and what happens when something is in the way."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slatewise.cli import demo_client
from tests.test_cli import slatewise

pytestmark = pytest.mark.process

NOWHERE = {
    "SLATEWISE_DATA": "/nowhere/at/all",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PIP_CONFIG_FILE": os.devnull,
}
"""An environment in which no source of data can be reached."""


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory, taken: int) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The directory and the words of a checked start without any source of data, on a port that is taken."""
    out = tmp_path_factory.mktemp("place") / "demo"
    cache = str(tmp_path_factory.mktemp("cache"))
    return out, slatewise("demo", "--check", "--port", str(taken), "--out", out, **NOWHERE, SLATEWISE_CACHE=cache)


@pytest.mark.slow
def test_without_any_source_the_demo_says_so_and_works(
    first_start: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = first_start
    assert done.returncode == 0, done.stderr
    assert "/nowhere/at/all (SLATEWISE_DATA) does not exist" in done.stderr
    assert "this demo uses a synthetic world" in done.stderr
    assert re.search(r"^ok: got a slate, clicked '.+' and got another slate$", done.stdout, re.M)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_passed_over(
    first_start: tuple[Path, subprocess.CompletedProcess[str]], taken: int
) -> None:
    _, done = first_start
    found = re.search(rf"port {taken} is in use, so the demo uses (\d+)", done.stderr)
    assert found is not None
    assert f"the page is at http://127.0.0.1:{found.group(1)} (press Ctrl-C to stop)" in done.stdout


@pytest.mark.slow
def test_other_data_are_trained_on_and_the_same_only_once(
    first_start: tuple[Path, subprocess.CompletedProcess[str]], real_data: Path
) -> None:
    """A start with other data trains again, the next one does not; Ctrl-C ends it with 130 and one line."""
    out, _ = first_start
    environment = {"SLATEWISE_DATA": str(real_data)}
    other = slatewise("demo", "--check", "--out", out, **environment)
    assert other.returncode == 0, other.stderr
    assert "training on Dataset('ml-100k'" in other.stderr
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "slatewise", "demo", "--no-browser", "--out", str(out)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "the page is at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "is up to date" in said
    assert "training" not in said
    assert said.rstrip().endswith("interrupted; no partial files were left behind")
    assert "Traceback" not in said


def test_the_check_fails_when_the_slate_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has teeth: a service that repeats itself, or loses the click, does not pass."""
    slate = {"slate_id": "s", "items": [{"id": 1, "title": "One"}]}
    other = {"slate_id": "t", "items": [{"id": 2, "title": "Two"}]}

    def answers(*given: object) -> None:
        script = iter(given)
        monkeypatch.setattr(demo_client, "request", lambda *_: next(script))

    answers(b"page", slate, {}, other, {"clicks": 1})
    assert demo_client.check(0).startswith("ok")
    answers(b"page", slate, {}, slate, {"clicks": 1})
    with pytest.raises(ValueError, match="repeats items"):
        demo_client.check(0)
    answers(b"page", slate, {}, other, {"clicks": 0})
    with pytest.raises(ValueError, match="one click was sent, but the service counts 0"):
        demo_client.check(0)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [("linux", {}, False), ("linux", {"DISPLAY": ":0"}, True), ("linux", {"DISPLAY": ""}, False), ("darwin", {}, True)],
)
def test_a_browser_is_opened_only_where_there_is_a_desktop(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], expected: bool
) -> None:
    for name in demo_client.DESKTOP_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert demo_client.has_desktop() is expected
