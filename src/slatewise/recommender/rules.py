"""How a user's log is turned into what is known about them; beliefs learned by other rules are learned again."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.policies import Policy
from slatewise.recommender.event_kinds import EVENT_KINDS, ITEM, EventKind
from slatewise.recommender.types import RequestError
from slatewise.store.records import FitRecord

SECONDS_PER_DAY = 86_400.0
FOLLOW_FIT = "curve"
"""The attention that follows what was fitted from the log."""
ATTENTION_FIT = "attention"
"""The name of that fit in the store."""


def fitted_attention(fit: FitRecord | None) -> Attention:
    """Return the attention that was fitted; what is safe while nothing was."""
    if fit is None:
        return SERVICE_DEFAULT
    return Attention(fit.content["rule"], fit.content["skip_weight"], tuple(fit.content["curve"]))


@dataclass(frozen=True)
class LearningRules:
    """What an item without a reaction means, how evidence ages, when shown items return, and the kinds of events.

    half_life: days after which evidence counts half; repeat_after: seconds after which a shown item may be offered
    again. Both are infinite by default.
    """

    attention: Attention = field(default_factory=Attention)
    half_life: float = math.inf
    repeat_after: float = math.inf
    kinds: Mapping[str, EventKind] = field(default_factory=lambda: EVENT_KINDS)

    def __post_init__(self) -> None:
        if not self.half_life > 0.0:
            raise ValueError(f"half_life is {self.half_life}; give a positive number of days")
        if not self.repeat_after >= 0.0:
            raise ValueError(f"repeat_after is {self.repeat_after}; give 0 or more seconds")

    def check(self, name: str, policy: Policy) -> None:
        """Refuse a policy that cannot let evidence age, if it has to."""
        learns = any(np.issubdtype(array.dtype, np.floating) for array in policy.start(1).values())
        if math.isfinite(self.half_life) and learns and not policy.additive:
            raise RequestError(f"{name} cannot forget old evidence; serve it without half_life")

    def about(self, kind: str) -> str:
        """Return what events of a kind are about; one that is not known any more is about an item."""
        return self.kinds[kind].about if kind in self.kinds else ITEM

    def described(self) -> dict[str, Any]:
        """Return the rules ready for JSON; infinite times are left out."""
        times = {"half_life": self.half_life, "repeat_after": self.repeat_after}
        finite = {name: value for name, value in times.items() if math.isfinite(value)}
        changed = {name: str(kind) for name, kind in self.kinds.items() if kind != EVENT_KINDS.get(name)}
        return {"attention": asdict(self.attention), **finite, **({"kinds": changed} if changed else {})}
