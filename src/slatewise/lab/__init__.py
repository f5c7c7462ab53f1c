"""The laboratory: people of a data set answer policies, and the paper's tables come out."""
