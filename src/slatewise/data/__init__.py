"""Where data comes from: tables, named data sets and synthetic worlds; all become a `Dataset`."""
