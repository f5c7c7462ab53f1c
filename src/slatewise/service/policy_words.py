"""Policies in words for people who do not know the formulas: a title and one sentence."""

from collections.abc import Mapping

POLICY_WORDS: Mapping[str, tuple[str, str]] = {
    "dc2b-calibrated": ("Learns your taste", "Learns how you differ from everyone else, and keeps every slate varied."),
    "dc2b": ("The paper’s method", "Guesses your taste afresh for every slate; varied, and bolder in trying things."),
    "popular": ("Most popular", "What most people like. It does not learn about you."),
    "random": ("Random picks", "Anything at all. It does not learn about you."),
    "logrank": ("Top ranked", "What fits the average person best. It does not learn about you."),
    "mmr": ("Top ranked, varied", "What fits the average person, less what is like the rest of the slate."),
    "epsilon-greedy": ("Top ranked, with surprises", "What fits the average person, with a random pick now and then."),
    "dpp-map": ("Average taste, very varied", "Balances what fits the average person with variety. It does not learn."),
    "c2ucb": ("Curious learner", "Learns your taste, and prefers what it knows least about."),
    "ec-bandit": ("One at a time", "Learns your taste and what you look at, one item after the other."),
    "ease": ("People also liked", "What people like who like the same things as you."),
    "gaussian": ("Likes in common", "Works out your likes from how everybody’s likes go together."),
    "ials": ("Matching factors", "Finds your place among people with similar likes."),
    "item-knn": ("Closest neighbors", "What is liked together with your likes."),
    "slim": ("A few strong links", "What a few of your likes point to most clearly."),
    "rp3beta": ("Walks from your likes", "What is reached from your likes through other people, rare finds included."),
    "logistic": ("Learner without variety", "Learns your taste from clicks, one slate after the other."),
    "lsb": ("Covers your topics", "Learns which topics you like, and covers them."),
    "cascade-lsb": ("Covers your topics, from the top", "The same, for people who stop at the first thing they like."),
}
"""Title and summary of the built-in policies."""

CALIBRATED_POLICIES = frozenset({"dc2b-calibrated"})
"""The policies whose probabilities can be taken at their word."""
