"""How a broadcast reaches every worker of a Dask cluster once: as a plugin, which late workers get as they join."""

from pathlib import Path

from distributed import Worker, WorkerPlugin

from slatewise.lab.broadcast import RECEIVED, MemoryBroadcast, load_broadcast


class BroadcastPlugin(WorkerPlugin):
    """Keeps the files of a broadcast in a worker's own folder for as long as the job lasts."""

    def __init__(self, name: str, content: MemoryBroadcast) -> None:
        self.name, self.content = name, content

    def setup(self, worker: Worker) -> None:
        """Write the files; their bytes need not stay in memory."""
        RECEIVED[self.name] = self.content.store(Path(worker.local_directory) / self.name)
        del self.content

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002
        """Remove the files."""
        folder = Path(RECEIVED.pop(self.name).folder)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        load_broadcast.cache_clear()
