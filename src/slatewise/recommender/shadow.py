"""A shadow policy: it chooses in the same situation as the policy that is shown, and is logged but never shown.

It costs one more choice of items, so it must be able to choose from what the shown policy knows: it does not learn, or
it differs only in how it chooses. Any other policy is judged from the log afterwards, by `slatewise evaluate`.
"""

from typing import Any

from slatewise.policies import Available, Policy, State
from slatewise.randomness import Streams
from slatewise.recommender.served_catalog import Integers, ServedPolicy
from slatewise.recommender.served_policies import policy_options

CHOOSING = {"diversity", "temperature", "explore", "explore_slates", "approximate"}
"""Options of policies that change what is chosen, and not what is learned."""


def check_shadow(shadow: ServedPolicy, shown: ServedPolicy) -> None:
    """Refuse a shadow that would need a belief of its own."""
    if not (does_not_learn(shadow) or learn_alike(shadow.policy, shown.policy)):
        raise ValueError(
            f"{shadow.name} learns otherwise than {shown.name}, so it cannot be its shadow; "
            "judge it by `slatewise evaluate`"
        )


def choose_as_shadow(shadow: ServedPolicy, state: State, situation: tuple[Available, int, Streams]) -> Integers | None:
    """Return the numbers of the items that a shadow would show, None if it fails.

    state: of the policy that is shown; situation: what is available, how many items, random numbers.
    """
    known = {"rounds": state["rounds"]} if does_not_learn(shadow) and "rounds" in state else state
    try:
        chosen: Integers = shadow.policy.select(known, *situation).items[0]
    except Exception:  # noqa: BLE001 a shadow never stands in the way of an answer
        return None
    return chosen[chosen >= 0]


def does_not_learn(shadow: ServedPolicy) -> bool:
    """Return whether a policy knows nothing about users but how many slates have taught anything."""
    return shadow.start.keys() == {"rounds"}


def learn_alike(first: Policy, second: Policy) -> bool:
    """Return whether two policies differ at most in how they choose."""

    def learning(policy: Policy) -> dict[str, Any]:
        return {name: value for name, value in policy_options(policy).items() if name not in CHOOSING}

    return type(first) is type(second) and learning(first) == learning(second)
