"""The HTTP service: a thin adapter around a recommender, with keys, limits, logs and metrics."""
