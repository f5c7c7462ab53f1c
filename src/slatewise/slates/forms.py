"""The forms of a greedy rule: for many users, for one user and a few candidates, for one user and all items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slatewise.slates.diversity import Rule
from slatewise.slates.greedy import Choice, Floats
from slatewise.slates.solo import SoloRule
from slatewise.slates.vectors import Candidates, ItemVectors


@dataclass(frozen=True)
class RuleFor:
    """What makes a rule: for candidates of a number of users, and for candidates of one user as rows (n, dim).

    screened, where there is one, fills the empty places of one user's choice from scores of all items.
    """

    together: Callable[[Candidates, int], Rule]
    alone: Callable[[Floats], SoloRule]
    screened: Callable[[Floats, ItemVectors, Choice], None] | None = None
