"""The service under load: requests at a constant rate, as many as it takes, and hours of them.

The generator runs in a process of its own, but on the same machine as the server; figures say so. It talks HTTP only,
so it can serve and compare any source tree.
"""
