"""Off-policy estimators: what another policy would have got, from slates that were shown, as plain functions on arrays.

All arrays are (n_slates, k). A propensity is the probability of an item at its place given the items before it, a
marginal whatever came before it; a place without an item has reward 0 and both propensities 1. Each estimator returns
one term per slate; their mean is the estimated reward per slate. What each assumes is in docs/evaluation.md.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ratios(target: Floats, logged: Floats) -> Floats:
    """Return target / logged of each place: the importance weights.

    >>> ratios(np.array([[0.5, 0.2]]), np.array([[0.25, 0.4]])).tolist()
    [[2.0, 0.5]]
    """
    if not (logged > 0.0).all():
        raise ValueError("an item was shown with propensity 0; the log and its propensities do not belong together")
    weights: Floats = target / logged
    return weights


def standard_ips(rewards: Floats, weights: Floats) -> Floats:
    """Weigh the slate's reward by the probability of the whole slate, Π w_l · Σ r_l; nothing is assumed of rewards.

    weights: `ratios` of propensities.
    """
    return np.asarray(weights.prod(axis=1) * rewards.sum(axis=1))


def independent_ips(rewards: Floats, marginal_weights: Floats) -> Floats:
    """IIPS, Σ w_l r_l with weights of marginals (Li et al. 2018): a reward depends on the item and its place alone."""
    return np.asarray((marginal_weights * rewards).sum(axis=1))


def reward_interaction_ips(rewards: Floats, weights: Floats) -> Floats:
    """RIPS, Σ w_1 ··· w_l r_l (McInerney et al. 2020): a reward depends on the items from the top down to its place."""
    return np.asarray((np.cumprod(weights, axis=1) * rewards).sum(axis=1))


def cascade_doubly_robust(rewards: Floats, weights: Floats, predicted: Floats, expected: Floats) -> Floats:
    """Cascade DR, Σ w_1 ··· w_l (r_l − q_l) + w_1 ··· w_{l−1} E_π q_l (Kiyohara et al. 2022).

    RIPS with a model of rewards: less noise if the model is good, and unbiased if it is not. predicted: the model's
    reward q_l of each shown item; expected: of what the target policy draws there, given the items before it.
    """
    down_to = np.cumprod(weights, axis=1)
    before = np.concatenate([np.ones((len(weights), 1)), down_to[:, :-1]], axis=1)
    return np.asarray((down_to * (rewards - predicted) + before * expected).sum(axis=1))


def pseudo_inverse(rewards: Floats, marginal_weights: Floats) -> Floats:
    """PI, (Σ w_l − k + 1) · Σ r_l (Swaminathan et al. 2017): the slate's reward is a sum over places, never observed.

    This is the closed form for places that are logged independently of each other; it ignores that an item is not
    shown twice. A place without an item has weight 1.
    """
    return np.asarray((marginal_weights.sum(axis=1) - marginal_weights.shape[1] + 1.0) * rewards.sum(axis=1))


def direct_method(expected: Floats) -> Floats:
    """Take the model's word, Σ q_l of slates that the target policy draws: little noise, all of the model's bias."""
    return np.asarray(expected.sum(axis=1))


def fitted_direct_method(rewards: Floats, predicted: Floats, expected: Floats) -> Floats:
    """Return terms with the mean of the direct method whose spread also has the noise of fitting the model.

    The model is scaled at each place to the rewards seen there, so `predicted`, of the shown items, adds up to the
    rewards. By the delta method a slate moves the estimate by Σ e_l + (E_l / Q_l) (r_l − q_l), with e_l expected, q_l
    predicted, and E_l and Q_l their sums over all slates. The second part has mean 0.
    """
    sums = predicted.sum(axis=0)
    leverage = np.divide(expected.sum(axis=0), sums, out=np.zeros_like(sums), where=sums > 0.0)
    return np.asarray(direct_method(expected) + ((rewards - predicted) * leverage).sum(axis=1))
