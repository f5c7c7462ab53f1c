"""The `slatewise` command: errors in one clear sentence, never a traceback for what a user can mend."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from slatewise.catalog.model_files import CatalogError
from slatewise.store.protocol import StoreError

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    try:
        from slatewise.cli import app
    except ModuleNotFoundError as error:
        sys.exit(f"error: the command line needs {error.name}: pip install 'slatewise[train]'")
    signal.signal(signal.SIGINT, _stop)
    try:
        app()
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed here: pip install 'slatewise[all]'"
        sys.exit(f"error: {missing if error.name else error}")
    except _mendable() as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            print("interrupted; nothing was left half done", file=sys.stderr)
        raise


def _mendable() -> tuple[type[Exception], ...]:
    """Errors whose words tell a user the way out; a machine that only serves has no tables to go wrong."""
    try:
        from slatewise.data.tables import DataError
    except ModuleNotFoundError:
        return CatalogError, StoreError, ArithmeticError
    return CatalogError, StoreError, ArithmeticError, DataError


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Unwind everything on Ctrl-C, so that temporary files go, and leave with the code shells expect."""
    raise SystemExit(INTERRUPTED)


if __name__ == "__main__":
    main()
