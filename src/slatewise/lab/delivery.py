"""How a parcel reaches every worker of a Dask cluster once: as a plugin, which late workers are given as they join."""

from pathlib import Path

from distributed import Worker, WorkerPlugin

from slatewise.lab.parcels import ARRIVED, Packed, opened


class Delivery(WorkerPlugin):
    """Keeps the files of a parcel in a worker's own folder, for as long as the job lasts."""

    def __init__(self, name: str, packed: Packed) -> None:
        self.name, self.packed = name, packed

    def setup(self, worker: Worker) -> None:
        """Take the parcel in; its bytes need not stay in memory."""
        ARRIVED[self.name] = self.packed.store(Path(worker.local_directory) / self.name)
        del self.packed

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002
        """Let go of the parcel."""
        folder = Path(ARRIVED.pop(self.name).folder)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        opened.cache_clear()
