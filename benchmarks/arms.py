"""Choose ten of a thousand arms and learn from ten rewards, against bayesianbandits.

Both sides have a Gaussian belief about one linear model over item vectors of 20 dimensions and sample from it (Thompson
sampling). Ours is `dc2b-calibrated` at temperature 1, which also diversifies. bayesianbandits has three forms: the
agent with a shared learner, its own advice for many arms, told of each arm's reward as its documentation says; the same
with the ten rewards given to the learner itself in one call; and one learner per arm.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import SLATE_SIZE, THREE_CLICKS, Visitor, random_catalog
from benchmarks.measure import seconds

DIM = 20
NO_CONTEXT = np.ones((1, 1))


def run(n_arms: int = 1_000, repeats: int = 101, disjoint_repeats: int = 5) -> dict[str, float]:
    """Measure all forms; the one with a learner per arm is slow and repeated less."""
    catalog = random_catalog(n_arms, DIM)
    vectors = catalog.taste_vectors.astype(np.float64)
    visitor = Visitor.returning("dc2b-calibrated", catalog, temperature=1.0)
    rewards, shared, disjoint = THREE_CLICKS[0].astype(np.float64), _shared_agent(vectors), _disjoint_agent(n_arms)
    tasks = {
        "ours": lambda: visitor.select_and_update(THREE_CLICKS),
        "": lambda: _pull_and_update(shared, NO_CONTEXT, rewards),
        "_batched": lambda: _pull_and_fit(shared, vectors, rewards),
    }
    times = seconds(tasks, repeats)
    slow = seconds({"_disjoint": lambda: _pull_and_update(disjoint, vectors[:1], rewards)}, disjoint_repeats)
    return {f"arms_peer{form}_speedup": (times | slow)[form] / times["ours"] for form in ("", "_batched", "_disjoint")}


@dataclass(frozen=True)
class _ArmVectors:
    """What the agent calls a featurizer: the rows of the arms, all of them prepared and not copied."""

    vectors: NDArray[np.float64]

    def transform(self, _context: Any, *, action_tokens: list[int]) -> NDArray[np.float64]:
        """Return the vectors (n_arms, dim) of some arms, or of all."""
        return self.vectors if len(action_tokens) == len(self.vectors) else self.vectors[action_tokens]


def _shared_agent(vectors: NDArray[np.float64]) -> Any:
    """Return an agent whose arms share one linear model."""
    from bayesianbandits import Arm, LipschitzContextualAgent, NormalRegressor, ThompsonSampling

    return LipschitzContextualAgent(
        arms=[Arm(number) for number in range(len(vectors))],
        policy=ThompsonSampling(),
        arm_featurizer=_ArmVectors(vectors),
        learner=NormalRegressor(alpha=1.0, beta=4.0),
        random_seed=0,
    )


def _disjoint_agent(n_arms: int) -> Any:
    """Return an agent with a linear model of the context for each arm."""
    from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

    arms = [Arm(number, learner=NormalRegressor(alpha=1.0, beta=4.0)) for number in range(n_arms)]
    return ContextualAgent(arms, ThompsonSampling(), random_seed=0)


def _pull_and_update(agent: Any, context: NDArray[np.float64], rewards: NDArray[np.float64]) -> None:
    """Do as the documentation of `top_k` says: name each arm, then tell its reward."""
    (tokens,) = agent.pull(context, top_k=SLATE_SIZE)
    for token, reward in zip(tokens, rewards, strict=True):
        agent.select_for_update(token).update(context, np.array([reward]))


def _pull_and_fit(agent: Any, vectors: NDArray[np.float64], rewards: NDArray[np.float64]) -> None:
    """Bypass the agent: one call of the shared learner for all ten rewards."""
    (tokens,) = agent.pull(NO_CONTEXT, top_k=SLATE_SIZE)
    agent.learner.partial_fit(vectors[tokens], rewards)
