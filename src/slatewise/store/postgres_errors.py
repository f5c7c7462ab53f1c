"""What a failure of PostgreSQL means for the store; no message holds a password, a statement or a value."""

import psycopg

from slatewise.store.protocol import StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError
from slatewise.store.rows import WAY_OUT


class AgainError(StoreUnavailableError):
    """The work was undone before it was committed, because it met another one; it may be run again."""


class LostError(AgainError):
    """The connection broke before the work was committed; it may be run again on another one."""


MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "23505": (AgainError, "another process wrote the same id"),
    "25006": (StoreUnavailableError, "it may only be read"),
    "40001": (AgainError, "it met another write"),
    "40P01": (AgainError, "it met another write"),
    "53100": (StoreFullError, "there is no room on its disk; free some, writing goes on by itself"),
    "53300": (StoreUnavailableError, "it has no connection to spare; raise max_connections"),
    "55P03": (StoreUnavailableError, "others hold on to this user for too long; try again later"),
    "57014": (StoreUnavailableError, "it took too long to answer; try again later"),
    "XX001": (StoreDamagedError, f"it is damaged; {WAY_OUT}"),
    "XX002": (StoreDamagedError, "an index is damaged; REINDEX it, and run `slatewise store verify`"),
}


def explained(error: psycopg.Error, where: str) -> StoreError:
    """Return the error of a store that says the same."""
    if error.sqlstate in MEANINGS:
        kind, meaning = MEANINGS[error.sqlstate]
        return kind(f"{where}: {meaning}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return LostError(f"{where} cannot be reached: {' '.join(str(error).split())}")
    if isinstance(error, psycopg.DataError):
        return StoreError(f"{where} cannot keep this value: {error.diag.message_primary or 'NUL in a text'}")
    return StoreError(f"{where}: {error.diag.message_primary or type(error).__name__}")
