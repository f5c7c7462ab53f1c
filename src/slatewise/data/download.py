"""Bring files from elsewhere: over HTTP(S), or out of a package index through pip.

A download is whole or it is not there: it is written under a temporary name, checked against the announced length,
flushed to disk and only then renamed; whatever goes wrong on the way, nothing is left behind.
"""

import http.client
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slatewise.data.dataset import DataError
from slatewise.files import write_whole

CHUNK_BYTES = 1 << 18
PIP_TIMEOUT_SECONDS = 300.0

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, how often to ask again, and how much to accept."""

    timeout: float = 30.0
    retries: int = 3
    pause: float = 0.5
    cap: int = 1 << 30


PATIENT = Patience()


class _PassingError(Exception):
    """Something that may well be over at the next try."""


def download(url: str, target: Path, progress: Progress, patience: Patience = PATIENT) -> None:
    """Fetch a URL into a file; `progress` hears bytes done and bytes in all (None when the server does not say)."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is not an http or https address")
    for attempt in range(patience.retries + 1):
        try:
            return _download_once(url, target, progress, patience)
        except _PassingError as error:
            trouble = error
        if attempt < patience.retries:
            time.sleep(patience.pause * 2**attempt)
    raise DataError(f"{url}: {trouble} (tried {patience.retries + 1} times)") from trouble


def pip_download(requirement: str, directory: Path, timeout: float = PIP_TIMEOUT_SECONDS) -> Path:
    """Fetch one wheel, without its dependencies and without running any of it, and return its path."""
    options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *options, "--retries", "1"]
    command += ["--dest", str(directory), requirement]
    try:
        done = subprocess.run(  # noqa: S603 (the command is fixed, the requirement comes from our registry)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"pip download {requirement} did not finish within {timeout:g} seconds") from error
    if "No module named pip" in done.stderr:
        raise DataError(f"pip is not installed for {sys.executable}; try: {sys.executable} -m ensurepip")
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        raise DataError(f"pip download {requirement} failed: {_last_line(done.stderr)}")
    return wheels[0]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _download_once(url: str, target: Path, progress: Progress, patience: Patience) -> None:
    with _open(url, patience) as response:
        try:
            write_whole(target, _chunks(response, url, progress, patience))
        except OSError as error:
            raise DataError(f"{target} cannot be written: {error.strerror}") from error


def _open(url: str, patience: Patience) -> http.client.HTTPResponse:
    """Ask for a URL. Refusals (4xx), an unknown host and no answer at all are final, the rest may pass."""
    try:
        response: http.client.HTTPResponse = _opener().open(url, timeout=patience.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {error.reason}"
        if error.code < 500:
            raise DataError(f"{url}: {answer}") from error
        raise _PassingError(answer) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise DataError(f"{url}: no answer within {patience.timeout:g} seconds") from error
        if isinstance(reason, socket.gaierror) and reason.errno != socket.EAI_AGAIN:
            raise DataError(f"{url}: {reason.strerror}; is this machine online?") from error
        raise _PassingError(str(reason) or type(reason).__name__) from error
    return response


def _opener() -> urllib.request.OpenerDirector:
    """Speak HTTP and HTTPS only, also where a redirect leads elsewhere; proxies are respected."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _chunks(response: http.client.HTTPResponse, url: str, progress: Progress, patience: Patience) -> Iterator[bytes]:
    """Yield the body as it comes; too long a body is refused, too short a one is passing trouble."""
    done, total = 0, response.length
    progress(done, total)
    while chunk := _read(response):
        done += len(chunk)
        if max(done, total or 0) > patience.cap:
            raise DataError(f"{url} sends more than {patience.cap:,} bytes, which is not the data set")
        yield chunk
        progress(done, total)
    if total is not None and done < total:
        raise _PassingError(f"the connection broke off after {done:,} of {total:,} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK_BYTES)
    except TimeoutError as error:
        raise _PassingError("the server stopped sending") from error
    except (OSError, http.client.HTTPException) as error:
        raise _PassingError(str(error) or type(error).__name__) from error
