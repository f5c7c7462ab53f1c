"""What the score of a chosen item is made of: the crowd, what was learned about the user, and exploration.

Only policies whose belief is Gaussian can say so. Their mean is m = Σ h, where h = Σ⁻¹m is a sum over evidence: an
observation of item j adds its pull p_j times x_j. So its share in m·x_i is p_j · x_iᵀ Σ x_j, exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.evidence import Evidence
from slatewise.policies import Policy, State
from slatewise.policies.c2ucb import C2Ucb
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.dc2b import Dc2b
from slatewise.policies.protocol import sigmoid
from slatewise.randomness import Streams

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Terms:
    """The score of each chosen item (k,) before variety, in probability: the sum of these.

    crowd: what somebody never seen would get; learned: what evidence about the user adds; explored: what a draw from
    what is uncertain, or a bound above it, adds; is_drawn: whether each place was drawn at random, not only by score.
    """

    crowd: Floats
    learned: Floats
    explored: Floats
    is_drawn: bool = False

    @property
    def score(self) -> Floats:
        """What the items were ranked by before variety."""
        return self.crowd + self.learned + self.explored


@dataclass(frozen=True)
class BeliefLayout:
    """Where a policy's state holds precision and shift, and which vectors θ multiplies.

    vectors: of all items, up to scale; met: of some items as evidence about them counts; shown: of some items as they
    are chosen by; pulls: the factors p of Σ⁻¹m += Σ p x for evidence (n_users, n); terms: of chosen items (k,).
    """

    precision: str
    shift: str
    vectors: Callable[[Any], NDArray[np.float32]]
    met: Callable[[Any, Integers], Floats]
    shown: Callable[[Any, Integers], Floats]
    pulls: Callable[[Any, Evidence], Floats]
    terms: Callable[[Any, belief.Factored, Integers, Streams], Terms]

    def belief(self, state: State) -> belief.Beliefs:
        """Return the Gaussian belief inside a state."""
        return belief.Beliefs(state[self.precision], state[self.shift])


def like_shares(
    layout: BeliefLayout, policy: Policy, beliefs: belief.Factored, items: Integers, likes: Evidence
) -> Floats:
    """Return the share p_j · x_iᵀ Σ x_j of each like (1, n) in m·x_i of each item (k,): (k, n) for one user."""
    met = layout.met(policy, likes.items[0]) * layout.pulls(policy, likes)[0][:, None]
    return np.asarray(beliefs.times_covariance(layout.shown(policy, items)[None])[0] @ met.T)


def _calibrated_pulls(policy: Calibrated, evidence: Evidence) -> Floats:
    """The factor w q (y − qμ) / ψ_q, as `belief.add_observations` has it."""
    expected, noise, chance = policy.rates[evidence.items], policy.noise[evidence.items], evidence.examined
    variance = chance * chance * noise + chance * (1.0 - chance) * expected
    return np.asarray(evidence.weight * chance * (evidence.value - chance * expected) / variance)


def _calibrated_terms(policy: Calibrated, beliefs: belief.Factored, items: Integers, random: Streams) -> Terms:
    learned = policy.tastes_now[items].astype(np.float64) @ beliefs.mean[0]
    score = policy.items.features[items].astype(np.float64) @ policy.drawn(beliefs, random)[0]
    return Terms(policy.current.mean[items], learned, score - learned, policy.explore_slates > 0.0)


def _dc2b_pulls(policy: Dc2b, evidence: Evidence) -> Floats:
    """The y + 2α − ½ of equation (8), times the weight."""
    push = 2.0 * policy.alpha if policy.exposure_push is None else policy.exposure_push
    counted = evidence.counted * np.where(evidence.liked, 1.0, evidence.examined)
    return np.asarray(counted * (evidence.value + push - 0.5))


def _dc2b_terms(policy: Dc2b, beliefs: belief.Factored, items: Integers, random: Streams) -> Terms:
    shown, start = policy.at(items[None]), policy.start(1)
    first = belief.factor(belief.Beliefs(**start)).logit_moments(shown)
    crowd, now = (belief.click_probability(*moments)[0][0] for moments in (first, beliefs.logit_moments(shown)))
    drawn = beliefs.sample(random.normal(policy.catalog.dim), policy.temperature)
    return Terms(crowd, now - crowd, sigmoid(shown[0] @ drawn[0]) - now)


def _c2ucb_pulls(policy: C2Ucb, evidence: Evidence) -> Floats:
    """The reward y, times weight and probability of examination."""
    del policy
    return np.asarray(evidence.counted * evidence.examined * evidence.value)


def _c2ucb_terms(policy: C2Ucb, beliefs: belief.Factored, items: Integers, random: Streams) -> Terms:
    del random
    estimate, variance = beliefs.logit_moments(policy.at(items[None]))
    return Terms(np.zeros(len(items)), estimate[0], policy.exploration * np.sqrt(variance[0]))


def _at(policy: Dc2b | C2Ucb, items: Integers) -> Floats:
    return policy.at(items)


BELIEF_LAYOUTS: dict[type, BeliefLayout] = {
    Calibrated: BeliefLayout(
        "precision",
        "shift",
        lambda policy: policy.vectors,
        lambda policy, items: policy.vectors[items].astype(np.float64),
        lambda policy, items: policy.tastes_now[items].astype(np.float64),
        _calibrated_pulls,
        _calibrated_terms,
    ),
    Dc2b: BeliefLayout("precision", "shift", lambda policy: policy.catalog.vectors, _at, _at, _dc2b_pulls, _dc2b_terms),
    C2Ucb: BeliefLayout("gram", "reward", lambda policy: policy.catalog.vectors, _at, _at, _c2ucb_pulls, _c2ucb_terms),
}
"""The policies whose belief can be shown and explained."""
