"""Hash partitions by user, made and pruned by PostgreSQL itself; every key of these tables begins with the user."""

from collections.abc import Callable

from psycopg.sql import SQL, Composed, Identifier, Literal

from slatewise.store.postgres_connection import Address, translated
from slatewise.store.postgres_migration import Connection, migrate, migrating

USER_TABLES = ("users", "beliefs", "slates", "feedback", "events", "counts")
"""What is about people; `items`, `item_table`, `item_rates` and `fits` are about the whole service and stay whole."""
MAX_PARTITIONS = 1024
STORAGE = {"users": "WITH (fillfactor = 70)"}
"""Rows of users are written again with every slate; with some room they stay on their page."""
KEYS = (
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE conrelid = %s::regclass AND contype IN ('p', 'u') ORDER BY conname"
)
INDEXES = (
    "SELECT replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') FROM pg_index"
    " WHERE indrelid = %s::regclass AND indexrelid NOT IN (SELECT conindid FROM pg_constraint) ORDER BY indexrelid"
)


def partition_tables(url: str, n_partitions: int, tell: Callable[[str], None] = lambda _: None) -> None:
    """Copy each table about people into so many partitions, in one transaction; whoever serves waits or is refused.

    tell: is called with a line of text before each table.
    """
    if not 1 <= n_partitions <= MAX_PARTITIONS:
        raise ValueError(f"the number of partitions must be between 1 and {MAX_PARTITIONS}")
    address = Address.of(url)
    migrate(address, read_only=False)
    with translated(address.where), migrating(address) as connection:
        connection.execute("SET LOCAL search_path = slatewise")
        tables = SQL(", ").join(map(Identifier, USER_TABLES))
        connection.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(tables))
        for table in USER_TABLES:
            tell(f"copying {table} ({USER_TABLES.index(table) + 1} of {len(USER_TABLES)} tables)")
            _partition(connection, table, n_partitions)
        connection.execute(SQL("ANALYZE {}").format(tables))


def _partition(connection: Connection, table: str, n_partitions: int) -> None:
    """Replace a table by a partitioned one with the same rows; its indexes are made after the rows are in."""
    keys, indexes = connection.execute(KEYS, (table,)).fetchall(), connection.execute(INDEXES, (table,)).fetchall()
    name, before = Identifier(table), Identifier(f"{table}_before")
    connection.execute(SQL("ALTER TABLE {} RENAME TO {}").format(name, before))
    _rename_partitions(connection, f"{table}_before")
    connection.execute(SQL("CREATE TABLE {} (LIKE {}) PARTITION BY HASH (user_id)").format(name, before))
    for number in range(n_partitions):
        connection.execute(_creation(table, number, n_partitions))
    connection.execute(SQL("INSERT INTO {} SELECT * FROM {}").format(name, before))
    connection.execute(SQL("DROP TABLE {}").format(before))
    for constraint, definition in keys:
        added = SQL(definition)
        connection.execute(SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(name, Identifier(constraint), added))
    for (definition,) in indexes:
        connection.execute(SQL(definition))


def _rename_partitions(connection: Connection, table: str) -> None:
    """Make room for the names of new partitions."""
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
    for (partition,) in connection.execute(query, (table,)).fetchall():
        renamed = SQL("ALTER TABLE {} RENAME TO {}")
        connection.execute(renamed.format(Identifier(partition), Identifier(f"{partition}_before")))


def _creation(table: str, number: int, n_partitions: int) -> Composed:
    sql = "CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {}) {}"
    names = (Identifier(f"{table}_{number}"), Identifier(table))
    return SQL(sql).format(*names, Literal(n_partitions), Literal(number), SQL(STORAGE.get(table, "")))
