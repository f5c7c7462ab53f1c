"""Read single files from an archive or an unpacked folder, without unpacking anything to disk.

A file is requested by its plain name (`u.data`), wherever it is in the archive. Paths in an archive are only compared,
never opened, so a member called `../../etc/passwd` does no harm. Decompression stops at a limit, whatever sizes the
archive declares, which defuses zip bombs.
"""

import lzma
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from slatewise.data.dataset import DataError

DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error, RuntimeError, OSError, ValueError)


def read_member(path: Path, name: str, cap: int) -> bytes:
    """Return the contents of the file `name` in a zip archive or folder; more than `cap` bytes are refused."""
    if path.is_dir():
        return _read_from_folder(path, name, cap)
    return _read_from_zip(path, name, cap)


def stamp(path: Path, names: tuple[str, ...]) -> dict[str, str | int]:
    """Fingerprint an archive or folder without reading it: by name, size and modification time."""
    files = [_in_folder(path, name) for name in names] if path.is_dir() else [path]
    states = [file.stat() for file in files if file is not None]
    return {
        "name": path.name,
        "size": sum(state.st_size for state in states),
        "mtime_ns": max((state.st_mtime_ns for state in states), default=0),
    }


def _read_from_zip(path: Path, name: str, cap: int) -> bytes:
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        with zipfile.ZipFile(path) as archive:
            member = _in_zip(archive, name)
            content = b"" if member is None else _read_some(archive.open(member), cap + 1)
    except DAMAGED as error:
        raise DataError(f"{path} is damaged or not a zip archive ({_reason(error)}); get a fresh copy") from error
    if member is None:
        raise DataError(f"{path} has no file {name}; is it the right archive?")
    return _within_cap(content, f"{name} in {path}", cap)


def _in_zip(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo | None:
    matches = [member for member in archive.infolist() if _is_called(member.filename, name)]
    return min(matches, key=lambda member: len(member.filename), default=None)


def _is_called(filename: str, name: str) -> bool:
    path = PurePosixPath(filename.replace("\\", "/"))
    return path.name == name and "__MACOSX" not in path.parts and not filename.endswith("/")


def _read_from_folder(path: Path, name: str, cap: int) -> bytes:
    try:
        file = _in_folder(path, name)
        content = b"" if file is None else _read_some(file.open("rb"), cap + 1)
    except OSError as error:
        raise DataError(f"{name} in {path} cannot be read: {_reason(error)}") from error
    if file is None:
        raise DataError(f"the folder {path} has no file {name}; is it the right folder?")
    return _within_cap(content, str(file), cap)


def _in_folder(path: Path, name: str) -> Path | None:
    folders = (path, *sorted(folder for folder in path.iterdir() if folder.is_dir()))
    file = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if file is not None and not file.resolve().is_relative_to(path.resolve()):
        raise DataError(f"{file} is a link that leads out of {path}; put the file itself there")
    return file


def _read_some(file: IO[bytes], limit: int) -> bytes:
    with file:
        return file.read(limit)


def _within_cap(content: bytes, label: str, cap: int) -> bytes:
    if len(content) > cap:
        raise DataError(f"{label} is larger than {cap:,} bytes, so it is not a faithful copy; get a fresh one")
    return content


def _reason(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
