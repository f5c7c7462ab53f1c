"""API keys: random, shown once, kept only as hashes; a running service notices when their file changes."""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slatewise.files import write_whole
from slatewise.service.validation_words import in_words, within_a_sentence

SCOPES = ("serve", "read", "items", "admin")
PREFIX = "swk_"
ID_LENGTH = 8
KEY = re.compile(r"swk_[A-Za-z0-9_-]{51}")
MAX_FILE_SIZE = 1 << 20
REPAIR = "restore it, or move it away and add keys again"

LOGGER = logging.getLogger(__name__)


class KeyFileError(ValueError):
    """A key file that cannot be used; the message names it and says what to do."""


@dataclass(frozen=True)
class Key:
    """What is kept of a key: its id (the start of the key, not secret), its holder, its scopes, and its hash."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "allow_inf_nan": False}

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    name: str
    scopes: Annotated[tuple[Annotated[str, Field(pattern=f"^({'|'.join(SCOPES)})$")], ...], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: float
    expires: float | None = None
    revoked: float | None = None

    def is_active(self, now: float) -> bool:
        """Whether the key is valid at this time."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class KeyFile(BaseModel):
    """What a key file contains."""

    keys: list[Key]


def new_key(name: str, scopes: Iterable[str], expires: float | None = None) -> tuple[str, Key]:
    """Generate a key: the text to hand out, which is not kept, and what is kept."""
    wanted = tuple(scope for scope in SCOPES if scope in set(scopes))
    unknown = set(scopes) - set(SCOPES)
    if unknown or not wanted:
        raise KeyFileError(f"a key needs one or more of the scopes {', '.join(SCOPES)}, and no others")
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise KeyFileError("a key needs a name of 1 to 100 printable characters, such as the name of its holder")
    identifier = secrets.token_hex(ID_LENGTH // 2)
    text = f"{PREFIX}{identifier}{secrets.token_urlsafe(32)}"
    return text, Key(identifier, name, wanted, _digest(text), time.time(), expires)


def read_keys(path: Path) -> list[Key]:
    """Read a key file."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise KeyFileError(f"{path} is too large to be a key file; {REPAIR}")
        return KeyFile.model_validate_json(path.read_bytes(), strict=True).keys
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}; `slatewise keys add` creates one") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(map(str, first["loc"])) or "its content"
        raise KeyFileError(
            f"{path} is not a key file ({where}: {within_a_sentence(in_words(first))}); {REPAIR}"
        ) from None


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Write a key file that only its owner can read; concurrent readers see the old file or the new one."""
    content = json.dumps({"keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    write_whole(path, [content.encode()], mode=0o600)


@contextmanager
def edit_keys(path: Path) -> Iterator[list[Key]]:
    """Yield the keys of a file, to be changed in place, then write them; concurrent changes wait for a lock."""
    lock_path = path.with_name(f".{path.name}.lock")
    with os.fdopen(os.open(lock_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = read_keys(path) if path.exists() else []
        yield keys
        write_keys(path, keys)


def revoke(keys: list[Key], identifier: str) -> None:
    """Revoke a key from now on."""
    index = _index(keys, identifier)
    keys[index] = replace(keys[index], revoked=time.time())


def rotate(keys: list[Key], identifier: str, until: float) -> tuple[str, Key]:
    """Add a new key with the name, scopes and expiry of an old one, which works until `until`; return the new one."""
    index = _index(keys, identifier)
    old = keys[index]
    text, key = new_key(old.name, old.scopes, old.expires)
    keys[index] = replace(old, expires=until if old.expires is None else min(until, old.expires))
    keys.append(key)
    return text, key


def _index(keys: list[Key], identifier: str) -> int:
    for index, key in enumerate(keys):
        if key.id == identifier and key.is_active(time.time()):
            return index
    raise KeyFileError(f"there is no active key {identifier!r}; `slatewise keys list` shows them")


class KeyRing:
    """The keys that are valid now; while their file is missing or unreadable, none is."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = path, clock
        self.keys = {key.id: key for key in read_keys(path)}
        self.seen = self._stamp()

    def find(self, text: str) -> Key | None:
        """Return the active key with this text."""
        self._refresh()
        key = self.keys.get(text[len(PREFIX) : len(PREFIX) + ID_LENGTH])
        if key is None or not KEY.fullmatch(text):
            return None
        matches = hmac.compare_digest(key.sha256, _digest(text))
        return key if matches and key.is_active(self.clock()) else None

    @property
    def n_active(self) -> int:
        """How many keys are valid now."""
        return sum(key.is_active(self.clock()) for key in self.keys.values())

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self.seen:
            return
        try:
            self.keys = {key.id: key for key in read_keys(self.path)}
        except KeyFileError as error:
            LOGGER.warning("every key is refused: %s", error)
            self.keys = {}
        self.seen = stamp

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
