"""Where data comes from: tables, named data sets, a synthetic world; all end in a `Dataset`."""
