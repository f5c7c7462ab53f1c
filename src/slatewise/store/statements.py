"""The SQL of both databases, with ? for parameters; table and column names are those of `migrations`."""

USER = "SELECT user_id, stamp, n_slates, logged_slates, logged_answers, checksum FROM users"
SLATE = (
    "SELECT slate_id, user_id, number, created_at, catalog, policy, items, variety, status, closed_at, checksum"
    " FROM slates"
)
FEEDBACK = "SELECT event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum FROM answers"

FIND_USER = USER + " WHERE user_id = ?"
LOCK_USER = FIND_USER + " FOR UPDATE"
"""PostgreSQL only; SQLite has one writer at a time."""
FIND_BELIEF = "SELECT user_id, space, covers, belief, checksum FROM beliefs WHERE user_id = ?"
FIND_SLATE = SLATE + " WHERE slate_id = ?"
SLATES_OF = SLATE + " WHERE user_id = ? ORDER BY number"
EXPIRED = SLATE + " WHERE status = 'open' AND created_at < ? ORDER BY created_at LIMIT ? OFFSET ?"
COUNT_EXPIRED = (
    "SELECT count(*), min(created_at) FROM (SELECT created_at FROM slates"
    " WHERE status = 'open' AND created_at < ? ORDER BY created_at LIMIT ?) AS expired"
)
FIND_FEEDBACK = FEEDBACK + " WHERE event_id = ?"
FEEDBACK_ON = FEEDBACK + " WHERE user_id = ? AND slate_id = ? ORDER BY arrival"
FEEDBACK_OF = FEEDBACK + " WHERE user_id = ? ORDER BY arrival"
N_SLATES_OF = "SELECT count(*) FROM slates WHERE user_id = ?"
N_FEEDBACK_OF = "SELECT count(*) FROM answers WHERE user_id = ?"
USERS = "SELECT user_id FROM users WHERE stamp <> '' UNION SELECT user_id FROM slates ORDER BY user_id"

ADD_USER = (
    "INSERT INTO users (user_id, stamp, n_slates, logged_slates, logged_answers, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (user_id) DO UPDATE SET"
)
CLAIM_USER = ADD_USER + (
    " user_id = excluded.user_id RETURNING user_id, stamp, n_slates, logged_slates, logged_answers, checksum"
)
"""Locks and returns a row; one that exists is not changed."""
RELEASE_USER = "DELETE FROM users WHERE user_id = ? AND stamp = '' AND logged_slates = 0 AND logged_answers = 0"
"""Deletes a row that was inserted only to be locked."""
SAVE_USER = ADD_USER + (
    " stamp = excluded.stamp, n_slates = excluded.n_slates, logged_slates = excluded.logged_slates,"
    " logged_answers = excluded.logged_answers, checksum = excluded.checksum"
)
SAVE_BELIEF = (
    "INSERT INTO beliefs (user_id, space, covers, belief, checksum) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (user_id) DO UPDATE SET"
    " space = excluded.space, covers = excluded.covers, belief = excluded.belief, checksum = excluded.checksum"
)
DISCARD_BELIEF = "DELETE FROM beliefs WHERE user_id = ? AND covers > ?"
ADD_SLATE = (
    "INSERT INTO slates (slate_id, user_id, number, created_at, catalog, policy, items, variety, status, closed_at,"
    " checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
UPDATE_SLATE = "UPDATE slates SET status = ?, closed_at = ?, checksum = ? WHERE slate_id = ?"
ADD_FEEDBACK = (
    "INSERT INTO answers (event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
COUNT = (
    "INSERT INTO counts (user_id, policy, slates, shown, clicks, variety) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (user_id, policy) DO UPDATE SET"
    " slates = counts.slates + excluded.slates, shown = counts.shown + excluded.shown,"
    " clicks = counts.clicks + excluded.clicks, variety = counts.variety + excluded.variety"
)
TOTALS = (
    "SELECT policy, count(*), sum(slates), sum(shown), sum(clicks), sum(variety), sum(1.0 * shown * shown),"
    " sum(1.0 * clicks * clicks), sum(1.0 * clicks * shown), sum(1.0 * slates * slates),"
    " sum(variety * variety), sum(variety * slates) FROM counts GROUP BY policy ORDER BY policy"
)
FORGET = (
    "DELETE FROM slates WHERE user_id = ? RETURNING 1",
    "DELETE FROM answers WHERE user_id = ? RETURNING 1",
    "DELETE FROM counts WHERE user_id = ? RETURNING 1",
    "DELETE FROM beliefs WHERE user_id = ? RETURNING 1",
    "DELETE FROM users WHERE user_id = ? RETURNING nullif(stamp, '')",
)
