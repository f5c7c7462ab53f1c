"""The SQL of both databases, with ? for parameters; table and column names are those of `migrations`."""

USER_COLUMNS = "user_id, version, n_slates, logged_slates, logged_feedback, updated_at, logged_events, checksum"
SLATE_COLUMNS = (
    "slate_id, user_id, number, created_at, catalog, policy, items, variety, status, closed_at, request_id, checksum"
)
FEEDBACK_COLUMNS = (
    "event_id, slate_id, user_id, clicked, retracted, final, received_at, seen, graded, disliked, checksum"
)
EVENT_COLUMNS = "event_id, user_id, item, kind, value, at, received_at, position, checksum"

USER = f"SELECT {USER_COLUMNS} FROM users"  # noqa: S608
SLATE = f"SELECT {SLATE_COLUMNS} FROM slates"  # noqa: S608
FEEDBACK = f"SELECT {FEEDBACK_COLUMNS} FROM feedback"  # noqa: S608
EVENT = f"SELECT {EVENT_COLUMNS} FROM events"  # noqa: S608

FIND_USER = USER + " WHERE user_id = ?"
LOCK_USER = FIND_USER + " FOR UPDATE"
"""PostgreSQL only; SQLite has one writer at a time."""
FIND_BELIEF = "SELECT user_id, key, covers, content, checksum FROM beliefs WHERE user_id = ?"
FIND_SLATE = SLATE + " WHERE slate_id = ?"
FIND_SLATE_OF_REQUEST = SLATE + " WHERE user_id = ? AND request_id = ?"
SLATES_OF = SLATE + " WHERE user_id = ? AND number >= ? ORDER BY number LIMIT ?"
CHOICES_OF = (
    "SELECT number, choice FROM slates WHERE user_id = ? AND number >= ? AND choice IS NOT NULL ORDER BY number LIMIT ?"
)
EXPIRED = SLATE + " WHERE status = 'open' AND created_at < ? ORDER BY created_at LIMIT ? OFFSET ?"
COUNT_EXPIRED = (
    "SELECT count(*), min(created_at) FROM (SELECT created_at FROM slates"
    " WHERE status = 'open' AND created_at < ? ORDER BY created_at LIMIT ?) AS expired"
)
FEEDBACK_ON = FEEDBACK + " WHERE user_id = ? AND slate_id = ? ORDER BY received_at, event_id"
FEEDBACK_ON_OR_WITH_ID = (
    FEEDBACK + " WHERE user_id = ? AND slate_id = ? UNION ALL " + FEEDBACK + " WHERE user_id = ? AND event_id = ?"
    " AND slate_id <> ? ORDER BY received_at, event_id"
)
FEEDBACK_OF = (
    FEEDBACK + " WHERE user_id = ? AND (received_at, event_id) > (?, ?) ORDER BY received_at, event_id LIMIT ?"
)
FIND_EVENT = EVENT + " WHERE user_id = ? AND event_id = ?"
EVENTS_OF = EVENT + " WHERE user_id = ? AND (received_at, event_id) > (?, ?) ORDER BY received_at, event_id LIMIT ?"
FIND_FIT = "SELECT name, fitted_at, content, checksum FROM fits WHERE name = ?"
POSITION_AT = "SELECT number FROM slates WHERE user_id = ? AND created_at <= ? ORDER BY number DESC LIMIT 1"
FIRST_SLATE_AT = "SELECT created_at FROM slates WHERE user_id = ? AND number = 0"
N_LOGGED = (
    "SELECT (SELECT count(*) FROM slates WHERE user_id = ?), (SELECT count(*) FROM feedback WHERE user_id = ?),"
    " (SELECT count(*) FROM events WHERE user_id = ?)"
)
USERS = (
    "SELECT user_id FROM users WHERE user_id > ? AND version <> '' UNION SELECT user_id FROM slates WHERE user_id > ?"
    " UNION SELECT user_id FROM events WHERE user_id > ? ORDER BY user_id LIMIT ?"
)

ADD_USER = f"INSERT INTO users ({USER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id) DO UPDATE SET"  # noqa: S608
CLAIM_USER = ADD_USER + f" user_id = excluded.user_id RETURNING {USER_COLUMNS}"
"""Locks and returns a row; one that exists is not changed."""
RELEASE_USER = (
    "DELETE FROM users WHERE user_id = ? AND version = '' AND logged_slates = 0 AND logged_feedback = 0"
    " AND logged_events IS NULL"
)
"""Deletes a row that was inserted only to be locked."""
SAVE_USER = ADD_USER + (
    " version = excluded.version, n_slates = excluded.n_slates, logged_slates = excluded.logged_slates,"
    " logged_feedback = excluded.logged_feedback, updated_at = excluded.updated_at,"
    " logged_events = excluded.logged_events, checksum = excluded.checksum"
)
SAVE_BELIEF = (
    "INSERT INTO beliefs (user_id, key, covers, content, checksum) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (user_id) DO UPDATE SET"
    " key = excluded.key, covers = excluded.covers, content = excluded.content, checksum = excluded.checksum"
)
DISCARD_BELIEF = "DELETE FROM beliefs WHERE user_id = ?"
ADD_SLATE = f"INSERT INTO slates ({SLATE_COLUMNS}, choice) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
UPDATE_SLATE = "UPDATE slates SET status = ?, closed_at = ?, checksum = ? WHERE user_id = ? AND number = ?"
ADD_FEEDBACK = f"INSERT INTO feedback ({FEEDBACK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
ADD_EVENT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
SAVE_FIT = (
    "INSERT INTO fits (name, fitted_at, content, checksum) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
    " fitted_at = excluded.fitted_at, content = excluded.content, checksum = excluded.checksum"
)
DISCARD_FIT = "DELETE FROM fits WHERE name = ?"
COUNT = (
    "INSERT INTO counts (user_id, policy, slates, shown, clicks, variety, varied) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (user_id, policy) DO UPDATE SET"
    " slates = counts.slates + excluded.slates, shown = counts.shown + excluded.shown,"
    " clicks = counts.clicks + excluded.clicks, variety = counts.variety + excluded.variety,"
    " varied = coalesce(counts.varied, counts.slates) + excluded.varied"
)
COUNTS_OF = (
    "SELECT policy, slates, shown, clicks, variety, coalesce(varied, slates) FROM counts WHERE user_id = ?"
    " ORDER BY policy"
)
TOTALS = (
    "SELECT policy, count(*), sum(slates), sum(shown), sum(clicks), sum(variety), sum(coalesce(varied, slates)),"
    " sum(1.0 * shown * shown), sum(1.0 * clicks * clicks), sum(1.0 * clicks * shown),"
    " sum(1.0 * coalesce(varied, slates) * coalesce(varied, slates)), sum(variety * variety),"
    " sum(variety * coalesce(varied, slates)) FROM counts GROUP BY policy ORDER BY policy"
)
FORGET = (
    "DELETE FROM slates WHERE user_id = ? RETURNING 1",
    "DELETE FROM feedback WHERE user_id = ? RETURNING 1",
    "DELETE FROM events WHERE user_id = ? RETURNING 1",
    "DELETE FROM counts WHERE user_id = ? RETURNING 1",
    "DELETE FROM beliefs WHERE user_id = ? RETURNING 1",
    "DELETE FROM users WHERE user_id = ? RETURNING nullif(version, '')",
)

ITEM_CONTENT = "item, title, categories, attributes, vector, available, published_at, checksum"
ITEM = f"SELECT {ITEM_CONTENT}, updated_at, number, version, content_version FROM items"  # noqa: S608
FIND_ITEM = ITEM + " WHERE item = ?"
ITEMS_SINCE = ITEM + " WHERE (version, number) > (?, ?) ORDER BY version, number LIMIT ?"
ITEMS_BY_NUMBER = ITEM + " WHERE number > ? ORDER BY number LIMIT ?"
FIND_CHANGED_ITEM = "SELECT number FROM items WHERE version = ? LIMIT 1"
ITEM_TABLE = "SELECT version, categories FROM item_table"
SAVE_ITEM_TABLE = "UPDATE item_table SET version = ?, categories = ?"
_REPLACE_ITEM = (
    " ON CONFLICT (item) DO UPDATE SET"
    " title = excluded.title, categories = excluded.categories, attributes = excluded.attributes,"
    " vector = excluded.vector, available = excluded.available, published_at = excluded.published_at,"
    " checksum = excluded.checksum, updated_at = excluded.updated_at, version = excluded.version,"
    " content_version = CASE WHEN items.title IS DISTINCT FROM excluded.title"
    " OR items.categories IS DISTINCT FROM excluded.categories OR items.vector IS DISTINCT FROM excluded.vector"
    " THEN excluded.version ELSE items.content_version END"
    " WHERE items.title IS DISTINCT FROM excluded.title OR items.categories IS DISTINCT FROM excluded.categories"
    " OR items.attributes <> excluded.attributes OR items.vector IS DISTINCT FROM excluded.vector"
    " OR items.available <> excluded.available OR items.published_at IS DISTINCT FROM excluded.published_at"
    " OR items.checksum <> excluded.checksum"
)


def put_items(n_items: int) -> str:
    """Return the statement that writes so many items; one that says the same as before is left as it is."""
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * n_items)
    columns = f"{ITEM_CONTENT}, updated_at, version, content_version"
    return f"INSERT INTO items ({columns}) VALUES {rows}{_REPLACE_ITEM}"  # noqa: S608


PUT_ITEM = put_items(1)
ADD_RATE = (
    "INSERT INTO item_rates (item, shard, seen, clicked, explained) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (item, shard) DO UPDATE SET seen = item_rates.seen + excluded.seen,"
    " clicked = item_rates.clicked + excluded.clicked, explained = item_rates.explained + excluded.explained"
)
RATES = (
    "SELECT item, sum(seen), sum(clicked), sum(explained) FROM item_rates WHERE shard >= ? AND shard < ?"
    " GROUP BY item ORDER BY item"
)
