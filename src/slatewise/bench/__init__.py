"""Speed and memory, measured on this machine: against the limit, against peers, and as a function of size.

Every group of figures is a module with a function `run`, and runs in a fresh process with one thread.
"""
