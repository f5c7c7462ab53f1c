"""The state of one user as bytes and back: named arrays in safetensors, symmetric matrices as triangles."""

import json
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from slatewise.policies import State

TRIANGLE = "triangle of "
KINDS = {"<f8": "F64", "<i8": "I64", "<f4": "F32", "|b1": "BOOL"}


def to_bytes(state: State) -> bytes:
    """Encode the state of one user; arrays have a leading user axis of 1."""
    packed = [_packed(name, np.ascontiguousarray(array)) for name, array in state.items()]
    header = _header(tuple((name, array.dtype.str, array.shape) for name, array in packed))
    return b"".join([header, *(array.tobytes() for _, array in packed)])


def from_bytes(content: bytes) -> State:
    """Decode the bytes of `to_bytes`; anything else is a ValueError."""
    try:
        return dict(_unpacked(name, array) for name, array in load(content).items())
    except (SafetensorError, KeyError) as error:
        raise ValueError("the bytes are not those of a state") from error


def difference(first: State, second: State) -> float:
    """Return the largest difference between two states, relative to 1 + their size; infinite if they do not fit."""
    if first.keys() != second.keys() or any(first[name].shape != second[name].shape for name in first):
        return float("inf")
    return max(
        float(np.max(np.abs(first[name] - second[name]) / (1.0 + np.abs(second[name])), initial=0.0)) for name in first
    )


def _packed(name: str, array: NDArray[np.generic]) -> tuple[str, NDArray[np.generic]]:
    """Keep only the upper triangle of a symmetric matrix."""
    if array.ndim == 3 and array.shape[1] == array.shape[2] and (array[0] == array[0].T).all():
        return TRIANGLE + name, array[0][_triangle(array.shape[1])]
    return name, array


def _unpacked(name: str, array: NDArray[np.generic]) -> tuple[str, NDArray[np.generic]]:
    if not name.startswith(TRIANGLE):
        return name, array
    dim = int((np.sqrt(8 * len(array) + 1) - 1) / 2)
    matrix = np.empty((1, dim, dim), dtype=array.dtype)
    rows, columns = _triangle(dim)
    matrix[0, rows, columns] = array
    matrix[0, columns, rows] = array
    return name.removeprefix(TRIANGLE), matrix


@lru_cache(maxsize=64)
def _header(layout: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    """Return the header of a safetensors file for arrays that follow in this order."""
    entries, start = {}, 0
    for name, kind, shape in layout:
        end = start + np.dtype(kind).itemsize * math.prod(shape)
        entries[name] = {"dtype": KINDS[kind], "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@lru_cache(maxsize=16)
def _triangle(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(dim)
