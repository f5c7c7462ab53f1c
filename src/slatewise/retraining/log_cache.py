"""What was read of a store's log, kept in a file, so that the next training reads only what is new.

A user of a store has a version that changes with everything that is written about them, however late it arrives
(`slatewise.store.records.UserRecord`). The file has a digest of each user and version with what was read then. A user
with a known digest is taken from the file, anybody else is read again from their first step on. Ids of users are not in
the file, and who was forgotten is gone from it after the next training.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from slatewise.files import write_whole
from slatewise.retraining.log import Integers, InteractionLog

KEY_BYTES = 16
SHA256_BYTES = 32
ARRAYS = tuple(field.name for field in fields(InteractionLog) if field.name != "item_ids")


def key_of(user: str, version: str) -> bytes:
    """Return the digest of a user as of a version."""
    return hashlib.blake2b(f"{user}\0{version}".encode(), digest_size=KEY_BYTES).digest()


@dataclass(frozen=True, eq=False)
class KnownLog:
    """A log, a key for each user that was read, and which person of the log that is, −1 for nobody."""

    log: InteractionLog
    keys: tuple[bytes, ...]
    people: Integers

    @cached_property
    def person_of(self) -> dict[bytes, int]:
        """The person of each key."""
        return dict(zip(self.keys, self.people.tolist(), strict=True))

    def write(self, path: Path, rules: str) -> None:
        """Write everything to a file, with the rules by which the log was read and a checksum."""
        arrays = {name: np.ascontiguousarray(getattr(self.log, name)) for name in ARRAYS}
        text = json.dumps({"rules": rules, "item_ids": self.log.item_ids}).encode()
        arrays["about"] = np.frombuffer(text, dtype=np.uint8)
        arrays["keys"] = np.frombuffer(b"".join(self.keys), dtype=np.uint8)
        content = save({**arrays, "key_people": self.people})
        write_whole(path, [hashlib.sha256(content).digest(), content])

    @classmethod
    def read(cls, path: Path, rules: str) -> "KnownLog | None":
        """Return what a file has; nothing if there is none, it is damaged, or the log was read by other rules."""
        content = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(content[SHA256_BYTES:]).digest() != content[:SHA256_BYTES]:
            return None
        try:
            arrays = load(content[SHA256_BYTES:])
            about = json.loads(arrays["about"].tobytes())
            log = InteractionLog(tuple(about["item_ids"]), **{name: arrays[name] for name in ARRAYS})
        except (SafetensorError, KeyError, ValueError):
            return None
        joined = arrays["keys"].tobytes()
        keys = tuple(joined[start : start + KEY_BYTES] for start in range(0, len(joined), KEY_BYTES))
        return cls(log, keys, arrays["key_people"]) if about["rules"] == rules else None
