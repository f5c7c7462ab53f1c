import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slatewise.data.dataset import DataError
from slatewise.data.download import Limits, download, pip_download

BODY = bytes(range(256)) * 4_000
HASTY = Limits(timeout=0.3, retries=3, pause=0.0)
Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers by the script of its server, one entry per request; the last one repeats."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.n_requests += 1
        server.script[min(server.n_requests, len(server.script)) - 1](self)

    def log_message(self, *_: object) -> None:
        pass

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    script: tuple[Answer, ...] = ()
    n_requests = 0
    release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.zip"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.release = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


def silent(_done: int, _total: int | None) -> None:
    pass


def good(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY))
    handler.wfile.write(BODY)


def without_length(handler: Handler) -> None:
    handler.head(200)
    handler.wfile.write(BODY)


def truncated(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY))
    handler.wfile.write(BODY[:1000])


def stalled(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY))
    handler.wfile.write(BODY[:1000])
    handler.wfile.flush()
    assert isinstance(handler.server, Server)
    handler.server.release.wait(10)


def mute(handler: Handler) -> None:
    assert isinstance(handler.server, Server)
    handler.server.release.wait(10)


def status(code: int) -> Answer:
    return lambda handler: handler.head(code, Content_Length=0)


def test_a_good_download_arrives_whole_and_tells_its_progress(server: Server, tmp_path: Path) -> None:
    server.script = (good,)
    heard: list[tuple[int, int | None]] = []
    download(server.url, tmp_path / "data.zip", lambda done, total: heard.append((done, total)), HASTY)
    assert (tmp_path / "data.zip").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["data.zip"]
    assert heard[0] == (0, len(BODY))
    assert heard[-1] == (len(BODY), len(BODY))
    assert heard == sorted(heard)


def test_an_unknown_length_is_told_as_none(server: Server, tmp_path: Path) -> None:
    server.script = (without_length,)
    totals: set[int | None] = set()
    download(server.url, tmp_path / "data.zip", lambda _, total: totals.add(total), HASTY)
    assert totals == {None}
    assert (tmp_path / "data.zip").read_bytes() == BODY


def test_a_server_in_passing_trouble_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.script = (status(500), truncated, stalled, good)
    download(server.url, tmp_path / "data.zip", silent, HASTY)
    assert (tmp_path / "data.zip").read_bytes() == BODY
    assert server.n_requests == 4


@pytest.mark.parametrize(
    ("answer", "message", "n_requests"),
    [
        (status(404), "the server responded 404 Not Found$", 1),
        (status(503), r"the server responded 503 Service Unavailable \(tried 4 times\)", 4),
        (truncated, r"the connection broke off after 1,000 of 1,024,000 bytes \(tried 4 times\)", 4),
        (stalled, r"the server stopped sending \(tried 4 times\)", 4),
        (mute, "no response within 0.3 seconds", 1),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    server: Server, tmp_path: Path, answer: Answer, message: str, n_requests: int
) -> None:
    server.script = (answer,)
    with pytest.raises(DataError, match=message) as caught:
        download(server.url, tmp_path / "data.zip", silent, HASTY)
    assert str(caught.value).startswith(server.url)
    assert server.n_requests == n_requests
    assert not list(tmp_path.iterdir())


def test_an_interrupted_download_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.script = (good,)
    seen: list[int] = []

    def interrupt(done: int, _: int | None) -> None:
        seen.append(len(list(tmp_path.iterdir())))
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.url, tmp_path / "data.zip", interrupt, HASTY)
    assert seen[-1] == 1
    assert not list(tmp_path.iterdir())


def test_a_failed_download_keeps_the_file_that_was_there(server: Server, tmp_path: Path) -> None:
    server.script = (truncated,)
    (tmp_path / "data.zip").write_bytes(b"old")
    with pytest.raises(DataError, match="broke off"):
        download(server.url, tmp_path / "data.zip", silent, HASTY)
    assert (tmp_path / "data.zip").read_bytes() == b"old"


@pytest.mark.parametrize("answer", [good, without_length])
def test_too_large_a_body_is_refused(server: Server, tmp_path: Path, answer: Answer) -> None:
    server.script = (answer,)
    with pytest.raises(DataError, match="sends more than 1,000 bytes"):
        download(server.url, tmp_path / "data.zip", silent, Limits(cap=1000))
    assert not list(tmp_path.iterdir())


def test_a_redirect_is_followed_but_only_to_http(server: Server, tmp_path: Path) -> None:
    server.script = (lambda handler: handler.head(302, Location="/elsewhere"), good)
    download(server.url, tmp_path / "data.zip", silent, HASTY)
    assert (tmp_path / "data.zip").read_bytes() == BODY
    server.script, server.n_requests = (lambda handler: handler.head(302, Location="ftp://127.0.0.1/x"),), 0
    with pytest.raises(DataError):
        download(server.url, tmp_path / "other.zip", silent, HASTY)
    assert not (tmp_path / "other.zip").exists()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/data.zip", "data.zip"])
def test_only_http_addresses_are_opened(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="is not an http or https address"):
        download(url, tmp_path / "data.zip", silent)


def test_nobody_listening_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"refused.* \(tried 4 times\)") as caught:
        download("http://127.0.0.1:9/data.zip", tmp_path / "data.zip", silent, HASTY)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "message", "n_lookups"),
    [
        (socket.EAI_NONAME, "not known; is this machine online", 1),
        (socket.EAI_AGAIN, r"not known \(tried 4 times\)", 4),
    ],
)
def test_an_unknown_host_is_final_but_a_failing_lookup_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str, n_lookups: int
) -> None:
    lookups: list[object] = []

    def look_up(*question: object, **_: object) -> None:
        lookups.append(question)
        raise socket.gaierror(code, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(DataError, match=message):
        download("http://nowhere.invalid/data.zip", tmp_path / "data.zip", silent, HASTY)
    assert len(lookups) == n_lookups


def test_a_target_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    server.script = (good,)
    with pytest.raises(DataError, match=r"gone/data\.zip cannot be written: No such file"):
        download(server.url, tmp_path / "gone" / "data.zip", silent, HASTY)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder cannot be written: Is a directory"):
        download(server.url, tmp_path / "folder", silent, HASTY)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def answer_of_pip(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if not code:
            Path(command[command.index("--dest") + 1], "thing-1-py3-none-any.whl").touch()
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr("subprocess.run", run)
    return commands


def test_pip_brings_one_wheel_without_building_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = answer_of_pip(monkeypatch, 0, "WARNING: something\n")
    assert pip_download("thing==1", tmp_path) == tmp_path / "thing-1-py3-none-any.whl"
    assert {"--no-deps", "--only-binary", "--no-input"} <= set(commands[0])
    assert commands[0][-1] == "thing==1"


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("WARNING: a\nERROR: no thing\n\n", "pip download thing==1 failed: ERROR: no thing$"),
        ("", "failed: there was no output"),
        ("/usr/bin/python: No module named pip\n", "pip is not installed for .* -m ensurepip"),
    ],
)
def test_a_failing_pip_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stderr: str, message: str
) -> None:
    answer_of_pip(monkeypatch, 1, stderr)
    with pytest.raises(DataError, match=message):
        pip_download("thing==1", tmp_path)


@pytest.mark.process
def test_a_pip_that_hangs_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did not finish"):
        pip_download("thing==1", tmp_path, timeout=0.01)
