"""A thread that copies a long WAL into the database while the writer goes on, on a connection of its own."""

import threading
from contextlib import suppress

import apsw


class Checkpoints:
    """Runs a passive checkpoint whenever asked; one that fails is made up for by the next, nothing is lost."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="slatewise-checkpoints", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Want a checkpoint soon."""
        self._wanted.set()

    def close(self) -> None:
        """Finish the one that runs, then stop."""
        self._is_closed = True
        self._wanted.set()
        self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        while not self._is_closed:
            self._wanted.wait()
            self._wanted.clear()
            if not self._is_closed:
                with suppress(apsw.Error):
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
