"""Changed copies of frozen dataclasses, for what is changed many times per request."""

from typing import Any, TypeVar

Instance = TypeVar("Instance")


def changed(instance: Instance, **changes: Any) -> Instance:
    """Do what dataclasses.replace does, at a third of its price: nothing is checked and no __post_init__ is run."""
    copy = object.__new__(type(instance))
    copy.__dict__.update(instance.__dict__, **changes)
    return copy
