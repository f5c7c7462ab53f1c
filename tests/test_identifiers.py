import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise.catalog.identifiers import Identifiers, PackedText


@given(st.lists(st.text()))
def test_packed_text_is_a_list_of_strings(texts: list[str]) -> None:
    packed = PackedText.pack(texts)
    assert list(packed) == texts
    assert packed[:] == texts
    assert [packed[-at] for at in range(1, len(texts) + 1)] == texts[::-1]


@pytest.mark.parametrize(
    "ids",
    [[-5, 0, 7, 2**62], ["", "a", "ab", "é", "日本"], [uuid.UUID(int=1), uuid.UUID(int=2**100)]],
    ids=["int", "str", "uuid"],
)
def test_identifiers_come_back_as_they_were(ids: list[int | str | uuid.UUID]) -> None:
    identifiers = Identifiers.of(ids)
    assert list(identifiers) == ids
    assert [type(one) for one in identifiers] == [type(one) for one in ids]
    assert [identifiers.find(one) for one in ids] == list(range(len(ids)))
    for stranger in (3, "zz", uuid.UUID(int=9), None, 1.5, True, np.int64(3)):
        assert identifiers.find(stranger) is None


@given(st.sets(st.text(), min_size=1), st.text())
def test_find_is_membership(ids: set[str], wanted: str) -> None:
    ordered = sorted(ids)
    assert Identifiers.of(ordered).find(wanted) == (ordered.index(wanted) if wanted in ids else None)


def test_mixed_identifiers_are_refused() -> None:
    with pytest.raises(TypeError, match="but these are int, str"):
        Identifiers.of([1, "a"])
