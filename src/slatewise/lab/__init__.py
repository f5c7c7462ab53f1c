"""The laboratory: simulate policies on the users of a data set and compute the paper's tables."""
