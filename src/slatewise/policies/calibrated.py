"""The calibrated policy: an exact Gaussian belief about how a user's likes differ from those of all users.

Where DC²B stands on logistic regression and the volume of item vectors, this policy stands on what was found to work
better (docs/method.md): likes are y_i = μ_i + θ·t_i + noise of variance ψ_i, θ ~ N(0, I), so the belief is updated in
closed form, and slates give up a little probability for items that differ.

A belief for which a skip has weight w chooses better where people do not look at everything (docs/method.md), but it
has seen too few refusals. With much evidence its odds of a like are those of likes to w times the refusals, that is 1/w
times too high; before any evidence they are right. So odds are multiplied by w^(n / (n + h)) after n slates.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.belief.gaussian import Factored
from slatewise.belief.rates import Rates
from slatewise.catalog import Catalog
from slatewise.catalog.mapped_arrays import shared
from slatewise.catalog.taste import category_columns, taste_categories
from slatewise.catalog.versioned_arrays import with_rows
from slatewise.evidence import Evidence
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    ScoreTerms,
    Slates,
    State,
    check_not_negative,
    check_share,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import (
    Available,
    CategorySets,
    Choice,
    LinearItems,
    Rule,
    Scores,
    choose,
    pack_sets,
    squared_lengths,
)
from slatewise.slates.kernels import Vectors
from slatewise.slates.quantized_updates import changed_items, changed_sets
from slatewise.slates.rules import OVERLAP, vectors_for_overlap
from slatewise.slates.scores import LINEAR, boosted, linear_scores, table
from slatewise.slates.stochastic import SoftmaxGreedy, StochasticChoice

MOST_LIKED = 10
LEAST_NOISE = 0.2
FIXED = ("vectors", "rates", "noise", "category_sets", "similarity_vectors", "model", "reported_likes")
PREPARED = (*FIXED, "current", "features", "items", "favorite_rate", "n_changed")
"""What is prepared once: for a catalog, and for its rates as they are now."""
HALFWAY = 3.0
"""h, the number of slates after which half of log w is made up for; chosen on validation users (docs/method.md)."""
LEAST_WEIGHT = 0.05
"""Skips that weigh less are made up for as if they weighed so much; without any there would be nothing to go by."""
LARGEST_CHANGED_SHARE = 1 / 50
"""After changes of so large a share of the items, the int8 copy of all is made again; at once, all that is prepared."""
APPROXIMATE_FROM = 1_000_000
"""Of fewer items, slates are chosen exactly, whatever the options say."""
EXPLORING = 8
"""Dimensions of the random directions in which uncertain rates are drawn."""
SALT, SLATE_SALT = 0x9D5C2E0B, 0x51A7E5
"""Make draws of rates, and of slates, independent of draws of tastes."""


class Scored(NamedTuple):
    """Beliefs about users, and how probable they say a like of each of some items is (n_users, n_items)."""

    beliefs: Factored
    items: LinearItems
    likes: Floats


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Belief over taste vectors; slate by probability minus the similarity with the items chosen so far.

    diversity: the one knob, 0 = most relevant to 1 = most varied; temperature τ of the sample θ̂ ~ N(m, τ²Σ), 0 means
    the mean; category_weight s: a share s² of how likes vary is a taste for the categories of an item, so that
    somebody who likes one category is recognized sooner, 0 means that only likes in common count; explore:
    how many standard deviations the rates of items are drawn from what is known of them (Thompson sampling at 1), which
    gives new items their chance, 0 means none; explore_slates: temperature of a softmax over the gains at each place,
    in units of `favorite_rate`, so that any slate is possible and its probability known, 0 means the best item;
    skip_weight: what a skip weighs in the evidence that is learned from (`slatewise.evidence.Attention`), which
    probabilities make up for; it changes nothing that is chosen or learned; approximate: of a million items or more,
    those are passed over unseen that would matter only if their cosine with the user's taste exceeded 1 minus this
    (docs/scale.md), 0 means none, so that the choice is exact.
    """

    catalog: Catalog
    diversity: float = 0.5
    temperature: float = 0.0
    category_weight: float = 0.25
    explore: float = 0.0
    explore_slates: float = 0.0
    skip_weight: float = 1.0
    approximate: float = 0.0
    choosing_options: ClassVar[tuple[str, ...]] = ("explore", "explore_slates", "approximate")
    """Options that no belief depends on; slates are logged with them."""
    one_at_a_time = False
    additive = ("precision", "shift")
    belief_arrays = ("precision", "shift")
    boost: ClassVar[Floats | None] = None
    n_changed: ClassVar[int] = 0
    """How many items have changed since the int8 copy of all was made."""

    def __post_init__(self) -> None:
        check_share("diversity", self.diversity)
        check_not_negative("temperature", self.temperature)
        check_share("category_weight", self.category_weight)
        check_not_negative("explore", self.explore)
        check_not_negative("explore_slates", self.explore_slates)
        check_share("approximate", self.approximate)
        check_not_negative("skip_weight", self.skip_weight)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The taste vectors t_i (n_items, rank), with a column for each category if categories have a weight."""
        if self.category_weight == 0.0 or not self.catalog.trained.n_categories:
            return self.catalog.taste_vectors
        return shared(self.vectors_of(np.arange(self.catalog.n_items)))

    def vectors_of(self, items: Integers) -> NDArray[np.float32]:
        """Return the rows of `vectors` of some items."""
        tastes = self.catalog.taste_vectors[items]
        if self.category_weight == 0.0 or not self.catalog.trained.n_categories:
            return tastes
        columns = category_columns(taste_categories(self.catalog, items), self.rates[items], self.category_weight)
        return np.hstack([tastes, columns.astype(np.float32)])

    @cached_property
    def items(self) -> LinearItems:
        """Tastes and rates as the slate rules take them."""
        return LinearItems.of(self.features, self.current.mean, base=self.current.mean)

    @cached_property
    def cosine_limit(self) -> float:
        """The largest cosine that items of blocks not yet read are thought to have; 1 if slates are chosen exactly."""
        return 1.0 - self.approximate if self.catalog.n_items >= APPROXIMATE_FROM else 1.0

    @cached_property
    def features(self) -> Vectors:
        """The t_i that slates are chosen by, with directions to draw rates in if they are explored."""
        return shared(self._features(slice(None)))

    def _features(self, rows: slice | Integers) -> Vectors:
        """Return the features of some items.

        An item's draw is g·f_i times the deviation of its rate, with g ~ N(0, I) of the slate and f_i a fixed direction
        of the item, so that every draw is normal and choosing stays linear in the item's features.
        """
        tastes = self._tastes(rows)
        if self.explore == 0.0:
            return tastes
        numbers = np.arange(self.catalog.n_items, dtype=np.uint64)[rows]
        directions = Streams(SALT, numbers, 0).normal(EXPLORING)
        scale = self.current.deviation[rows] / np.sqrt(squared_lengths(directions))
        return np.hstack([tastes, directions * scale[:, None]]).astype(np.float32)

    @cached_property
    def rates(self) -> Floats:
        """The share of users μ_i that likes each item, as the catalog has it: what evidence is compared with."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def current(self) -> Rates:
        """The rates that slates are chosen by: those of the catalog, or of `with_rates`."""
        return Rates(self.rates, self.catalog.rate_strengths)

    @property
    def tastes_now(self) -> Vectors:
        """The t_i that slates are chosen by: like √(μ(1 − μ)), they grow with a rate that is learned."""
        return self.features[:, : self.vectors.shape[1]]

    def _tastes(self, rows: slice | Integers) -> Vectors:
        if self.current.mean is self.rates:
            return self.vectors[rows]
        now, then = self.current.mean[rows], self.rates[rows]
        scale = np.sqrt(now * (1.0 - now) / (then * (1.0 - then)))
        tastes = self.vectors[rows] * scale[:, None].astype(np.float32)
        if self.catalog.knows_nothing:  # the level of all rates is in the rates now
            tastes[:, self.catalog.taste_vectors.shape[1] - 1] = 0.0
        return np.asarray(tastes)

    @cached_property
    def noise(self) -> Floats:
        """What taste does not explain of each item's variance, ψ_i = μ_i(1 − μ_i) − |t_i|²; a share is always left."""
        return self._noise(slice(None))

    def _noise(self, items: slice | Integers) -> Floats:
        variance = self.rates[items] * (1.0 - self.rates[items])
        unexplained = variance - squared_lengths(self.vectors[items])
        return np.asarray(np.maximum(unexplained, LEAST_NOISE * variance))

    @cached_property
    def model(self) -> belief.LinearModel:
        """How likes depend on taste."""
        return belief.LinearModel(self.vectors, self.rates, self.noise)

    @cached_property
    def reported_likes(self) -> belief.ReportedLikes:
        """What a like that was reported from elsewhere says, by the trained items."""
        n_trained = self.catalog.trained.n_items
        return belief.ReportedLikes.of(self.vectors[:n_trained], self.rates[:n_trained])

    @cached_property
    def favorite_rate(self) -> float:
        """The mean rate of the ten items that most users like."""
        n_others = max(self.catalog.n_items - MOST_LIKED, 0)
        return float(np.sort(np.partition(self.current.mean, n_others)[n_others:]).mean())

    @cached_property
    def category_sets(self) -> CategorySets:
        """The categories of each item as the slate rules take them."""
        return pack_sets(self.catalog.categories)

    @cached_property
    def similarity_vectors(self) -> Vectors:
        """The vectors whose cosines say how similar items are; none if all items have categories."""
        return vectors_for_overlap(self.category_sets, self.catalog.similarity_vectors)

    def with_diversity(self, diversity: float) -> "Calibrated":
        """Return the same policy with another diversity; everything prepared is shared."""
        return self._sharing(replace(self, diversity=diversity))

    @property
    def is_approximate(self) -> bool:
        """Whether slates may differ from the exact choice; those that are drawn never do."""
        return self.cosine_limit < 1.0 and self.explore_slates == 0.0

    def with_approximate(self, approximate: float) -> "Calibrated":
        """Return the same policy with another approximation, 0 for none; everything prepared is shared."""
        return self._sharing(replace(self, approximate=approximate))

    def _sharing(self, other: "Calibrated") -> "Calibrated":
        vars(other).update({name: getattr(self, name) for name in PREPARED})
        return other

    def with_boost(self, factors: Floats) -> "Calibrated":
        """Return the same policy that takes the probability of each item times a factor (n_items,) when it chooses."""
        other = self.with_diversity(self.diversity)
        vars(other)["boost"] = factors
        return other

    def prepared_as(self, other: "Calibrated") -> "Calibrated | None":
        """Return the same policy with what another that learns the same has prepared; None if that differs."""
        return other._sharing(replace(self)) if self.explore == other.explore else None

    def scored(self, state: State) -> "Scored":
        """Return the beliefs in a state, ready to be used, and how probable they say a like of each item is."""
        beliefs = belief.factor(self.belief_in(state))
        drawn = np.zeros((len(beliefs.mean), self.items.features.shape[1] - beliefs.mean.shape[1]))
        weights = np.hstack([beliefs.mean, drawn])
        return Scored(beliefs, self.items, linear_scores(Scores(LINEAR, weights, self.items)))

    def probabilities(self, state: State, scored: "Scored | None" = None) -> Floats:
        """Return how probable a click on each item is (n_users, n_items), as `select` says it.

        scored: by the same policy in the same state, where that is known already.
        """
        likes = np.clip((self.scored(state) if scored is None else scored).likes, 0.0, 1.0)
        return likes if self.skip_weight == 1.0 else with_odds(likes, odds_factor(state["rounds"], self.skip_weight))

    def with_rates(self, rates: Rates) -> "Calibrated":
        """Return the same policy, choosing by other rates; what it learns about users does not depend on them.

        What is prepared for items whose rates stay is taken over, so that this takes time for those that changed.
        """
        other = replace(self)
        vars(other).update({name: getattr(self, name) for name in FIXED})
        vars(other)["current"] = rates
        changed = np.flatnonzero((rates.mean != self.current.mean) | (rates.strength != self.current.strength))
        is_level_moved = self.catalog.knows_nothing and self.current.mean is self.rates  # see `_tastes`
        if "features" in vars(self) and not is_level_moved and len(changed) <= LARGEST_CHANGED_SHARE * len(rates.mean):
            vars(other)["features"] = with_rows(self.features, len(rates.mean), changed, other._features(changed))
            other._reuse_items(self, changed)
        return other

    def with_items(self, catalog: Catalog, changed: Integers) -> "Calibrated":
        """Return the same policy on a catalog in which only some items differ, among them all that are new at its end.

        What is prepared for the others is copied, so that this takes time for those that changed.
        """
        other, n_items = replace(self, catalog=catalog), catalog.n_items
        tables = vars(other)
        tables["rates"] = with_rows(self.rates, n_items, changed, sigmoid(catalog.log_odds[changed]))
        tables["vectors"] = with_rows(self.vectors, n_items, changed, other.vectors_of(changed))
        tables["noise"] = with_rows(self.noise, n_items, changed, other._noise(changed))
        tables["reported_likes"] = self.reported_likes
        tables["category_sets"] = changed_sets(self.category_sets, catalog.categories[changed], n_items, changed)
        if self.current.mean is not self.rates:
            known = Rates.of(catalog)
            means = with_rows(self.current.mean, n_items, changed, known.mean[changed])
            strengths = with_rows(self.current.strength, n_items, changed, known.strength[changed])
            tables["current"] = Rates(means, strengths, self.current.level)
        tables["features"] = (
            other.vectors
            if self.features is self.vectors
            else with_rows(self.features, n_items, changed, other._features(changed))
        )
        other._reuse_items(self, changed)
        return other

    def _reuse_items(self, before: "Calibrated", changed: Integers) -> None:
        """Take over the items of the policy before, but for some that changed; now and then all are copied again."""
        n_changed = before.n_changed + len(changed)
        if self.features is before.features and np.array_equal(self.current.mean, before.current.mean):
            vars(self).update(items=before.items, n_changed=before.n_changed)
        elif n_changed <= LARGEST_CHANGED_SHARE * self.catalog.n_items:
            items = changed_items(before.items, (self.features, self.current.mean), changed)
            vars(self).update(items=items, n_changed=n_changed)

    def overlap_weight(self, is_first: bool) -> float:
        """What being fully similar to an item chosen before costs, in probability.

        The unit is the mean rate of the ten most liked items, so the knob means the same on every catalog. The first
        slate asks about items that most users like; it gives up relevance only in the upper half of the knob.
        """
        wanted = max(0.0, 2.0 * self.diversity - 1.0) if is_first else self.diversity
        return wanted**2 * self.favorite_rate

    @cached_property
    def overlap_weights(self) -> Floats:
        """The weights of a first slate and of all others."""
        return np.array([self.overlap_weight(True), self.overlap_weight(False)])

    def start(self, n_users: int) -> State:
        """Everyone begins with the average taste: θ ~ N(0, I)."""
        rank = self.vectors.shape[1]
        return {
            "precision": np.tile(np.eye(rank), (n_users, 1, 1)),
            "shift": np.zeros((n_users, rank)),
            "rounds": np.zeros(n_users, dtype=np.int64),
        }

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by probability minus the similarity with the items chosen so far; see `rules.overlap`."""
        beliefs = belief.factor(self.belief_in(state))
        scores, rule = self._scores(beliefs, random), self._rule(state)
        choice: Choice | StochasticChoice
        if self.explore_slates > 0.0:
            starts = Streams(random.seed ^ SLATE_SALT, random.users, random.step).starts
            choice = self._softmax(scores, rule).draw(available, k, starts)
        else:
            choice = choose(scores, rule, available, k)
        rates = self.items.base, self.current.deviation
        corrected = self._corrected(*beliefs.like_moments(choice.items, self.items.features, rates), state["rounds"])
        propensity = getattr(choice, "propensity", None)
        return Slates(choice.items, *corrected, choice.variety, propensity, beliefs if len(choice.items) == 1 else None)

    def _corrected(self, probability: Floats, deviation: Floats, rounds: Integers) -> tuple[Floats, Floats]:
        """Return probabilities and deviations (n_users, n) that make up for skips of little weight."""
        if self.skip_weight == 1.0:
            return probability, deviation
        factor = odds_factor(rounds, self.skip_weight)
        return with_odds(probability, factor), deviation * slope_with_odds(probability, factor)

    def softmax(self, state: State, random: Streams, scored: "Scored | None" = None) -> SoftmaxGreedy | None:
        """Return how slates are drawn, None if they are not.

        scored: by a policy that learns the same, in the same state, where that is known already.
        """
        if self.explore_slates == 0.0:
            return None
        if scored is not None and scored.items is self.items and self.boost is None and not self.is_drawing:
            return self._softmax(table(scored.likes), self._rule(state))
        beliefs = belief.factor(self.belief_in(state)) if scored is None else scored.beliefs
        return self._softmax(self._scores(beliefs, random), self._rule(state))

    @property
    def is_drawing(self) -> bool:
        """Whether tastes or rates are drawn before a slate is chosen."""
        return self.temperature > 0.0 or self.explore > 0.0

    def _softmax(self, scores: Scores, rule: Rule) -> SoftmaxGreedy:
        return SoftmaxGreedy.of(scores, rule, self.explore_slates * self.favorite_rate)

    def _scores(self, beliefs: Factored, random: Streams) -> Scores:
        """Return what slates are chosen by: probabilities, with tastes and rates drawn where that is asked for."""
        scores = Scores(LINEAR, self.drawn(beliefs, random), self.items, cosine_limit=self.cosine_limit)
        return scores if self.boost is None else boosted(scores, self.boost)

    def drawn(self, beliefs: Factored, random: Streams) -> Floats:
        """Return what slates are chosen by, for `items.features`: tastes, and draws of rates if they are explored."""
        theta = beliefs.mean
        if self.temperature > 0.0:
            theta = beliefs.sample(random.normal(theta.shape[1]), self.temperature)
        if self.explore > 0.0:
            draws = Streams(random.seed ^ SALT, random.users, random.step).normal(EXPLORING)
            theta = np.hstack([theta, self.explore * draws])
        return theta

    def _rule(self, state: State) -> Rule:
        """Return what makes slates varied; a first slate has a weight of its own."""
        weights = self.overlap_weights.take(state["rounds"] != 0)
        return Rule(OVERLAP, weights, vectors=self.similarity_vectors, sets=self.category_sets)

    def update(self, state: State, evidence: Evidence) -> State:
        """Add the evidence: Σ⁻¹ += Σ w q² t tᵀ / ψ_q and Σ⁻¹m += Σ w q (y − qμ) t / ψ_q, exact and in any order.

        Likes that were reported from elsewhere are added as `belief.ReportedLikes` says.
        """
        seen, before = evidence, self.belief_in(state)
        if evidence.reported is not None:
            before = self.reported_likes.add(before, evidence, self.vectors, self.rates)
            seen = replace(evidence, weight=np.where(evidence.reported, 0.0, evidence.weight))
        learned = belief.add_observations(before, seen, self.model)
        rounds = evidence.count_rounds(state["rounds"])
        return {"precision": learned.precision, "shift": learned.shift, "rounds": rounds}

    @property
    def belief_vectors(self) -> NDArray[np.float32]:
        """The t_i of all items."""
        return self.vectors

    def belief_in(self, state: State) -> belief.Beliefs:
        """Return the belief inside a state."""
        return belief.Beliefs(state["precision"], state["shift"])

    def chosen_at(self, items: Integers) -> Floats:
        """Return the t_i of some items as their rates are now."""
        return self.tastes_now[items].astype(np.float64)

    def shifts(self, evidence: Evidence) -> Floats:
        """Return the w q (y − qμ) t / ψ_q of each observation, or what a reported like adds."""
        shifts = belief.observation_shifts(evidence, self.model)
        if evidence.reported is not None:
            items = evidence.items[0]
            reported = self.reported_likes.shifts(self.vectors[items].astype(np.float64), self.rates[items])
            shifts = np.where(evidence.reported[0][:, None], evidence.weight[0][:, None] * reported, shifts)
        return shifts

    def score_terms(self, beliefs: Factored, items: Integers, random: Streams) -> ScoreTerms:
        """Return the rates, what taste adds, and what draws of tastes and rates do."""
        learned = self.chosen_at(items) @ beliefs.mean[0]
        score = self.items.features[items].astype(np.float64) @ self.drawn(beliefs, random)[0]
        return ScoreTerms(self.current.mean[items], learned, score - learned, self.explore_slates > 0.0)


def odds_factor(rounds: NDArray[np.int64], skip_weight: float) -> Floats:
    """Return w^(n / (n + h)) of users who were shown n slates (n_users,)."""
    counted = np.maximum(rounds, 0)
    return np.asarray(np.power(max(skip_weight, LEAST_WEIGHT), counted / (counted + HALFWAY)))


def with_odds(probability: Floats, factor: Floats) -> Floats:
    """Return probabilities (n_users, n) whose odds are multiplied by a factor of the user (n_users,); 0 and 1 stay."""
    scaled = factor[:, None] * probability
    return np.asarray(scaled / (1.0 - probability + scaled))


def slope_with_odds(probability: Floats, factor: Floats) -> Floats:
    """Return the derivative of `with_odds`, by which a small deviation of the probability is multiplied."""
    return np.asarray(factor[:, None] / np.square(1.0 - probability + factor[:, None] * probability))
