"""What an error of PostgreSQL means for the store; no message holds a password, a statement or a value."""

import psycopg

from slatewise.store.protocol import StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError
from slatewise.store.rows import RESTORE


class ServerSilentError(psycopg.OperationalError):
    """The server did not respond in time, so the connection was closed."""


class RetryError(StoreUnavailableError):
    """The job was rolled back because it conflicted with another one; it may be run again."""


class ConnectionLostError(RetryError):
    """The connection broke before the job was committed; it may be run again on another one."""


class ServerAwayError(StoreUnavailableError):
    """The server cannot be reached or does not respond; trying again at once would not help."""


class UserLockedError(StoreUnavailableError):
    """Somebody else is writing about this user; the job may be run again where it can wait."""

    def __init__(self, message: str, user: str | None = None) -> None:
        super().__init__(message)
        self.user = user


MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "23505": (RetryError, "another process wrote the same id"),
    "25006": (StoreUnavailableError, "it is read-only"),
    "40001": (RetryError, "it conflicted with another write"),
    "40P01": (RetryError, "it conflicted with another write"),
    "53100": (StoreFullError, "its disk is full; free some space, and writing resumes by itself"),
    "53300": (StoreUnavailableError, "it has no free connection; raise max_connections"),
    "55P03": (UserLockedError, "another writer has held this user for too long; try again later"),
    "57014": (StoreUnavailableError, "it took too long; try again later"),
    "XX001": (StoreDamagedError, f"it is damaged; {RESTORE}"),
    "XX002": (StoreDamagedError, "an index is damaged; REINDEX it, and run `slatewise store verify`"),
}


def explained(error: psycopg.Error, where: str) -> StoreError:
    """Return the store's error for an error of PostgreSQL."""
    if error.sqlstate in MEANINGS:
        kind, meaning = MEANINGS[error.sqlstate]
        return kind(f"{where}: {meaning}")
    if isinstance(error, ServerSilentError):
        return ServerAwayError(f"{where} cannot be reached: {error}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ConnectionLostError(f"{where} cannot be reached: {' '.join(str(error).split())}")
    if isinstance(error, psycopg.DataError):
        return StoreError(f"{where} cannot store this value: {error.diag.message_primary or 'NUL in a text'}")
    return StoreError(f"{where}: {error.diag.message_primary or type(error).__name__}")


def is_outcome_unknown(error: psycopg.Error) -> bool:
    """Return whether a COMMIT that ended like this may have taken effect: the server went away without a response."""
    return error.sqlstate is None or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
