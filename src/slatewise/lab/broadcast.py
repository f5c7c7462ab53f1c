"""Broadcast variables: a data set, a catalog or an array that every worker needs, as files identified by their content.

The files are the same on disk and over the network, safetensors with a JSON manifest, and are checked when loaded. A
worker loads a broadcast once, however many tasks refer to it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.model_files import MANIFEST, Arrays, read_model
from slatewise.catalog.versions import add_version
from slatewise.data.dataset import Dataset

LOADED_AT_ONCE = 4


@dataclass(frozen=True)
class DiskBroadcast:
    """A broadcast whose files are in a folder on this machine; equal if the content is equal."""

    kind: str
    digest: str
    folder: str = field(compare=False)

    def open(self) -> Any:
        """Read and check the files."""
        return READERS[self.kind](Path(self.folder))


@dataclass(frozen=True)
class MemoryBroadcast:
    """A broadcast that carries its files, for machines that share no disk; equal if the content is equal."""

    kind: str
    digest: str
    files: dict[str, bytes] = field(compare=False, repr=False)

    @classmethod
    def of(cls, content: Dataset | Catalog | NDArray[np.float64]) -> Self:
        """Serialize a data set, a catalog or an array."""
        with TemporaryDirectory(prefix="slatewise-") as folder:
            if isinstance(content, Dataset):
                kind = "dataset"
                _write_dataset(content, Path(folder))
            elif isinstance(content, np.ndarray):
                kind = "array"
                add_version(Path(folder), {"array": content}, {})
            else:
                kind = "catalog"
                content.save(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        return cls(kind, hashlib.sha256(files[MANIFEST]).hexdigest(), files)

    def store(self, folder: Path) -> DiskBroadcast:
        """Write the files into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return DiskBroadcast(self.kind, self.digest, str(folder))

    def open(self) -> Any:
        """Read and check the files."""
        with TemporaryDirectory(prefix="slatewise-") as folder:
            return self.store(Path(folder)).open()


RECEIVED: dict[str, DiskBroadcast] = {}
"""What was sent to this worker process, by name."""


@dataclass(frozen=True)
class WorkerBroadcast:
    """A broadcast that was sent to every worker in advance; equal if the content is equal."""

    kind: str
    digest: str
    name: str = field(compare=False)

    def open(self) -> Any:
        """Read and check the files that this worker received."""
        if self.name not in RECEIVED:
            raise FileNotFoundError(f"this worker did not receive the {self.kind} {self.digest}; its log says why")
        return RECEIVED[self.name].open()


Broadcast = DiskBroadcast | MemoryBroadcast | WorkerBroadcast


@lru_cache(maxsize=LOADED_AT_ONCE)
def load_broadcast(broadcast: Broadcast) -> Any:
    """Return the content of a broadcast; this process loads it once and keeps its own copy."""
    return broadcast.open()


def _write_dataset(dataset: Dataset, folder: Path) -> None:
    arrays: Arrays = {"users": dataset.users, "items": dataset.items, "categories": dataset.categories.astype(np.uint8)}
    arrays |= _texts("titles", PackedText.pack(dataset.titles))
    about: dict[str, Any] = {"name": dataset.name, "notes": dataset.notes, "category_names": dataset.category_names}
    for name, ids in (("user_ids", dataset.user_ids), ("item_ids", dataset.item_ids)):
        identifiers = Identifiers.of(ids.tolist())
        about[name] = identifiers.kind
        arrays |= _texts(name, identifiers.values)
    add_version(folder, arrays, about)


def _read_dataset(folder: Path) -> Dataset:
    arrays, about, _ = read_model(folder)
    return Dataset(
        name=about["name"],
        user_ids=_identifiers(arrays, "user_ids", about["user_ids"]),
        item_ids=_identifiers(arrays, "item_ids", about["item_ids"]),
        titles=tuple(PackedText(arrays["titles"], arrays["titles.ends"])),
        category_names=tuple(about["category_names"]),
        categories=arrays["categories"].astype(bool),
        users=arrays["users"],
        items=arrays["items"],
        notes=tuple(about["notes"]),
    )


def _texts(name: str, values: Any) -> Arrays:
    return {name: values.buffer, f"{name}.ends": values.ends} if isinstance(values, PackedText) else {name: values}


def _identifiers(arrays: Arrays, name: str, kind: str) -> Any:
    if kind == "int":
        return arrays[name]
    ids = Identifiers(kind, PackedText(arrays[name], arrays[f"{name}.ends"]))
    result = np.empty(len(ids), dtype=object)
    result[:] = list(ids)
    return result


def _read_array(folder: Path) -> NDArray[np.float64]:
    arrays, _, _ = read_model(folder)
    return arrays["array"]


READERS: dict[str, Callable[[Path], Any]] = {"dataset": _read_dataset, "catalog": Catalog.load, "array": _read_array}
