"""Judging policies: off-policy estimators on arrays, and confidence sequences that may be looked at any time."""
