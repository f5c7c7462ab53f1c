"""The service under load: requests at a constant rate, the most it can take, and hours of it.

The generator runs in a process of its own, but on the same machine as the server; figures say so.
"""
