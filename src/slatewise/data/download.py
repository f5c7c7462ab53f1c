"""Download files: over HTTP(S), or from a package index through pip.

A download is complete or it does not exist: it is written under a temporary name, checked against the announced length,
flushed to disk and only then renamed; if anything goes wrong, nothing is left behind.
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
class Limits:
    """How long to wait for a server, how often to retry, and how much to accept."""

    timeout: float = 30.0
    retries: int = 3
    pause: float = 0.5
    cap: int = 1 << 30


DEFAULT_LIMITS = Limits()


class _TransientError(Exception):
    """A failure that may not happen again on the next attempt."""


def download(url: str, target: Path, progress: Progress, limits: Limits = DEFAULT_LIMITS) -> None:
    """Fetch a URL into a file; `progress` is called with bytes done and bytes in total (None if not announced)."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is not an http or https address")
    for attempt in range(limits.retries + 1):
        try:
            return _download_once(url, target, progress, limits)
        except _TransientError as error:
            failure = error
        if attempt < limits.retries:
            time.sleep(limits.pause * 2**attempt)
    raise DataError(f"{url}: {failure} (tried {limits.retries + 1} times)") from failure


def pip_download(requirement: str, directory: Path, timeout: float = PIP_TIMEOUT_SECONDS) -> Path:
    """Fetch a wheel, without its dependencies and without running any of its code, and return its path."""
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
    return lines[-1] if lines else "there was no output"


def _download_once(url: str, target: Path, progress: Progress, limits: Limits) -> None:
    with _open(url, limits) as response:
        try:
            write_whole(target, _chunks(response, url, progress, limits))
        except OSError as error:
            raise DataError(f"{target} cannot be written: {error.strerror}") from error


def _open(url: str, limits: Limits) -> http.client.HTTPResponse:
    """Open a URL. A refusal (4xx), an unknown host and a timeout are final; other failures are worth a retry."""
    try:
        response: http.client.HTTPResponse = _opener().open(url, timeout=limits.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        status = f"the server responded {error.code} {error.reason}"
        if error.code < 500:
            raise DataError(f"{url}: {status}") from error
        raise _TransientError(status) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise DataError(f"{url}: no response within {limits.timeout:g} seconds") from error
        if isinstance(reason, socket.gaierror) and reason.errno != socket.EAI_AGAIN:
            raise DataError(f"{url}: {reason.strerror}; is this machine online?") from error
        raise _TransientError(str(reason) or type(reason).__name__) from error
    return response


def _opener() -> urllib.request.OpenerDirector:
    """Allow HTTP and HTTPS only, even after redirects; proxies are respected."""
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


def _chunks(response: http.client.HTTPResponse, url: str, progress: Progress, limits: Limits) -> Iterator[bytes]:
    """Yield the body as it arrives; one that is too long is refused, one that is cut short is worth a retry."""
    done, total = 0, response.length
    progress(done, total)
    while chunk := _read(response):
        done += len(chunk)
        if max(done, total or 0) > limits.cap:
            raise DataError(f"{url} sends more than {limits.cap:,} bytes, so it is not the data set")
        yield chunk
        progress(done, total)
    if total is not None and done < total:
        raise _TransientError(f"the connection broke off after {done:,} of {total:,} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK_BYTES)
    except TimeoutError as error:
        raise _TransientError("the server stopped sending") from error
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(str(error) or type(error).__name__) from error
