"""The tables of SQL stores, as numbered steps from nothing; a released step never changes, a new one is appended."""

from slatewise.store.protocol import StoreError

MIGRATIONS: list[dict[str, str]] = [
    {
        "sqlite": """
            CREATE TABLE users (
                user_id TEXT NOT NULL PRIMARY KEY, stamp TEXT NOT NULL, n_slates INTEGER NOT NULL,
                logged_slates INTEGER NOT NULL, logged_answers INTEGER NOT NULL, checksum INTEGER NOT NULL
            ) WITHOUT ROWID;
            CREATE TABLE beliefs (
                user_id TEXT NOT NULL PRIMARY KEY, space TEXT NOT NULL, covers INTEGER NOT NULL, belief BLOB NOT NULL,
                checksum INTEGER NOT NULL
            );
            CREATE TABLE slates (
                slate_id TEXT NOT NULL PRIMARY KEY, user_id TEXT NOT NULL, number INTEGER NOT NULL,
                created_at REAL NOT NULL, catalog TEXT NOT NULL, policy TEXT NOT NULL, items TEXT NOT NULL,
                variety REAL NOT NULL, status TEXT NOT NULL, closed_at REAL, checksum INTEGER NOT NULL,
                UNIQUE (user_id, number)
            );
            CREATE INDEX open_slates ON slates (created_at) WHERE status = 'open';
            CREATE TABLE answers (
                arrival INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, slate_id TEXT NOT NULL,
                user_id TEXT NOT NULL, clicked TEXT NOT NULL, retracted TEXT NOT NULL, final INTEGER NOT NULL,
                received_at REAL NOT NULL, checksum INTEGER NOT NULL
            );
            CREATE INDEX answers_of_user ON answers (user_id, slate_id);
            CREATE TABLE counts (
                user_id TEXT NOT NULL, policy TEXT NOT NULL, slates INTEGER NOT NULL, shown INTEGER NOT NULL,
                clicks INTEGER NOT NULL, variety REAL NOT NULL, PRIMARY KEY (user_id, policy)
            ) WITHOUT ROWID;
        """,
        "postgresql": """
            CREATE TABLE users (
                user_id TEXT COLLATE "C" PRIMARY KEY, stamp TEXT NOT NULL, n_slates BIGINT NOT NULL,
                logged_slates BIGINT NOT NULL, logged_answers BIGINT NOT NULL, checksum BIGINT NOT NULL
            ) WITH (fillfactor = 70);
            CREATE TABLE beliefs (
                user_id TEXT COLLATE "C" PRIMARY KEY, space TEXT NOT NULL, covers BIGINT NOT NULL,
                belief BYTEA NOT NULL, checksum BIGINT NOT NULL
            );
            CREATE TABLE slates (
                slate_id TEXT COLLATE "C" PRIMARY KEY, user_id TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL,
                created_at DOUBLE PRECISION NOT NULL, catalog TEXT NOT NULL, policy TEXT NOT NULL, items TEXT NOT NULL,
                variety DOUBLE PRECISION NOT NULL, status TEXT NOT NULL, closed_at DOUBLE PRECISION,
                checksum BIGINT NOT NULL, UNIQUE (user_id, number)
            );
            CREATE INDEX open_slates ON slates (created_at) WHERE status = 'open';
            CREATE TABLE answers (
                arrival BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id TEXT COLLATE "C" NOT NULL UNIQUE,
                slate_id TEXT NOT NULL, user_id TEXT COLLATE "C" NOT NULL, clicked TEXT NOT NULL,
                retracted TEXT NOT NULL, final BIGINT NOT NULL, received_at DOUBLE PRECISION NOT NULL,
                checksum BIGINT NOT NULL
            );
            CREATE INDEX answers_of_user ON answers (user_id, slate_id);
            CREATE TABLE counts (
                user_id TEXT COLLATE "C", policy TEXT COLLATE "C", slates BIGINT NOT NULL, shown BIGINT NOT NULL,
                clicks BIGINT NOT NULL, variety DOUBLE PRECISION NOT NULL, PRIMARY KEY (user_id, policy)
            );
        """,
    },
]


def steps_from(version: int, dialect: str, where: str) -> list[str]:
    """Return the scripts that bring a store of a version up to date; refuse one written by a newer slatewise."""
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{where} was written by a newer slatewise (its tables are version {version}, this one knows "
            f"{len(MIGRATIONS)}); install that version again"
        )
    return [step[dialect] for step in MIGRATIONS[version:]]
