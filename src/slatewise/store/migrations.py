"""The tables of SQL stores, as numbered steps from nothing; a released step never changes, a new one is appended.

In PostgreSQL a step may begin with an online part, which workers of the version before do not notice: see
`postgres_migration`. Its statements name the schema and can be repeated, and its indexes are built concurrently. In the
table `counts`, a null in `varied` stands for as many as there are in `slates`.
"""

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
    {
        "sqlite": """
            ALTER TABLE users RENAME COLUMN stamp TO version;
            ALTER TABLE users RENAME COLUMN logged_answers TO logged_feedback;
            ALTER TABLE users ADD COLUMN updated_at REAL;
            ALTER TABLE users ADD COLUMN logged_events INTEGER;
            DROP TABLE beliefs;
            CREATE TABLE beliefs (
                user_id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, covers INTEGER NOT NULL, content BLOB NOT NULL,
                checksum INTEGER NOT NULL
            );
            ALTER TABLE slates RENAME TO slates_of_version_1;
            DROP INDEX open_slates;
            CREATE TABLE slates (
                user_id TEXT NOT NULL, number INTEGER NOT NULL, slate_id TEXT NOT NULL, created_at REAL NOT NULL,
                catalog TEXT NOT NULL, policy TEXT NOT NULL, items TEXT NOT NULL, variety REAL NOT NULL,
                status TEXT NOT NULL, closed_at REAL, request_id TEXT, checksum INTEGER NOT NULL, choice TEXT,
                PRIMARY KEY (user_id, number)
            );
            INSERT INTO slates
                SELECT user_id, number, slate_id, created_at, catalog, policy, items, variety, status, closed_at, NULL,
                checksum, NULL FROM slates_of_version_1 ORDER BY slates_of_version_1.rowid;
            DROP TABLE slates_of_version_1;
            CREATE INDEX slates_by_id ON slates (slate_id);
            CREATE INDEX open_slates ON slates (created_at) WHERE status = 'open';
            CREATE UNIQUE INDEX slates_by_request ON slates (user_id, request_id) WHERE request_id IS NOT NULL;
            CREATE TABLE feedback (
                user_id TEXT NOT NULL, event_id TEXT NOT NULL, slate_id TEXT NOT NULL, clicked TEXT NOT NULL,
                retracted TEXT NOT NULL, final INTEGER NOT NULL, received_at REAL NOT NULL, seen TEXT, graded TEXT,
                disliked TEXT, checksum INTEGER NOT NULL, PRIMARY KEY (user_id, event_id)
            ) WITHOUT ROWID;
            INSERT INTO feedback
                SELECT user_id, event_id, slate_id, clicked, retracted, final, received_at, NULL, NULL, NULL, checksum
                FROM answers;
            DROP TABLE answers;
            CREATE INDEX feedback_by_slate ON feedback (user_id, slate_id, received_at);
            CREATE INDEX feedback_by_arrival ON feedback (user_id, received_at);
            CREATE TABLE events (
                user_id TEXT NOT NULL, event_id TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL, value REAL,
                at REAL NOT NULL, received_at REAL NOT NULL, position INTEGER NOT NULL, checksum INTEGER NOT NULL,
                PRIMARY KEY (user_id, event_id)
            ) WITHOUT ROWID;
            CREATE INDEX events_by_arrival ON events (user_id, received_at);
            CREATE TABLE fits (
                name TEXT NOT NULL PRIMARY KEY, fitted_at REAL NOT NULL, content TEXT NOT NULL,
                checksum INTEGER NOT NULL
            ) WITHOUT ROWID;
        """,
        "postgresql online": """
            ALTER TABLE slatewise.slates ADD COLUMN IF NOT EXISTS request_id TEXT COLLATE "C",
                ADD COLUMN IF NOT EXISTS choice TEXT;
            CREATE UNIQUE INDEX CONCURRENTLY slates_by_number ON slatewise.slates (user_id, number);
            CREATE INDEX CONCURRENTLY slates_by_id ON slatewise.slates (slate_id);
            CREATE UNIQUE INDEX CONCURRENTLY slates_by_request ON slatewise.slates (user_id, request_id)
                WHERE request_id IS NOT NULL;
            CREATE UNIQUE INDEX CONCURRENTLY feedback_by_id ON slatewise.answers (user_id, event_id);
            CREATE INDEX CONCURRENTLY feedback_by_arrival ON slatewise.answers (user_id, received_at)
        """,
        "postgresql": """
            ALTER TABLE users RENAME COLUMN stamp TO version;
            ALTER TABLE users RENAME COLUMN logged_answers TO logged_feedback;
            ALTER TABLE users ADD COLUMN updated_at DOUBLE PRECISION, ADD COLUMN logged_events BIGINT;
            DROP TABLE beliefs;
            CREATE TABLE beliefs (
                user_id TEXT COLLATE "C" PRIMARY KEY, key TEXT NOT NULL, covers BIGINT NOT NULL,
                content BYTEA NOT NULL, checksum BIGINT NOT NULL
            );
            ALTER TABLE slates DROP CONSTRAINT slates_pkey, DROP CONSTRAINT slates_user_id_number_key;
            ALTER TABLE slates ADD CONSTRAINT slates_pkey PRIMARY KEY USING INDEX slates_by_number;
            ALTER TABLE answers RENAME TO feedback;
            ALTER TABLE feedback DROP COLUMN arrival, DROP CONSTRAINT answers_event_id_key, ADD COLUMN seen TEXT,
                ADD COLUMN graded TEXT, ADD COLUMN disliked TEXT;
            ALTER TABLE feedback ADD CONSTRAINT feedback_pkey PRIMARY KEY USING INDEX feedback_by_id;
            ALTER INDEX answers_of_user RENAME TO feedback_by_slate;
            CREATE TABLE events (
                user_id TEXT COLLATE "C" NOT NULL, event_id TEXT COLLATE "C" NOT NULL, item TEXT NOT NULL,
                kind TEXT NOT NULL, value DOUBLE PRECISION, at DOUBLE PRECISION NOT NULL,
                received_at DOUBLE PRECISION NOT NULL, position BIGINT NOT NULL, checksum BIGINT NOT NULL,
                PRIMARY KEY (user_id, event_id)
            );
            CREATE INDEX events_by_arrival ON events (user_id, received_at);
            CREATE TABLE fits (
                name TEXT COLLATE "C" PRIMARY KEY, fitted_at DOUBLE PRECISION NOT NULL, content TEXT NOT NULL,
                checksum BIGINT NOT NULL
            );
        """,
    },
    {
        "sqlite": """
            CREATE TABLE item_table (
                id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, categories TEXT NOT NULL
            );
            INSERT INTO item_table VALUES (1, 0, '[]');
            CREATE TABLE items (
                number INTEGER PRIMARY KEY, item TEXT NOT NULL UNIQUE, title TEXT, categories TEXT,
                attributes TEXT NOT NULL, vector BLOB, available INTEGER NOT NULL, published_at REAL,
                checksum INTEGER NOT NULL, version INTEGER NOT NULL, content_version INTEGER NOT NULL,
                updated_at REAL NOT NULL
            );
            CREATE INDEX items_by_version ON items (version, number);
            CREATE TABLE item_rates (
                item TEXT NOT NULL, shard TEXT NOT NULL, seen REAL NOT NULL, clicked REAL NOT NULL,
                explained REAL NOT NULL, PRIMARY KEY (item, shard)
            ) WITHOUT ROWID;
            ALTER TABLE counts ADD COLUMN varied INTEGER;
        """,
        "postgresql": """
            CREATE TABLE item_table (
                id BIGINT PRIMARY KEY CHECK (id = 1), version BIGINT NOT NULL, categories TEXT NOT NULL
            );
            INSERT INTO item_table VALUES (1, 0, '[]');
            CREATE TABLE items (
                number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item TEXT COLLATE "C" NOT NULL UNIQUE,
                title TEXT, categories TEXT, attributes TEXT NOT NULL, vector BYTEA, available BIGINT NOT NULL,
                published_at DOUBLE PRECISION, checksum BIGINT NOT NULL, version BIGINT NOT NULL,
                content_version BIGINT NOT NULL, updated_at DOUBLE PRECISION NOT NULL
            );
            CREATE INDEX items_by_version ON items (version, number);
            CREATE TABLE item_rates (
                item TEXT COLLATE "C" NOT NULL, shard TEXT COLLATE "C" NOT NULL, seen DOUBLE PRECISION NOT NULL,
                clicked DOUBLE PRECISION NOT NULL, explained DOUBLE PRECISION NOT NULL, PRIMARY KEY (item, shard)
            );
            ALTER TABLE counts ADD COLUMN varied BIGINT;
        """,
    },
]


def online_part(step: int) -> list[str]:
    """Return the statements that come before the script of a step in PostgreSQL."""
    statements = MIGRATIONS[step].get("postgresql online", "").split(";")
    return [statement.strip() for statement in statements if statement.strip()]


def steps_from(version: int, dialect: str, where: str) -> list[str]:
    """Return the scripts that bring a store of a version up to date; refuse one written by a newer slatewise."""
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{where} was written by a newer slatewise (its tables are version {version}, this one knows "
            f"{len(MIGRATIONS)}); install that version again"
        )
    return [step[dialect] for step in MIGRATIONS[version:]]
