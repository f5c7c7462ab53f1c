"""The `slatewise` command: a mistake the user can fix is reported in one clear sentence, never as a traceback."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from slatewise.catalog.model_files import CatalogError
from slatewise.data.errors import DataError
from slatewise.plugins import PluginError
from slatewise.store.protocol import StoreError

INTERRUPTED = 130
EXPLAINED = (ArithmeticError, CatalogError, DataError, PluginError, StoreError)
"""Errors whose message already tells the user what to do."""


def main() -> None:
    """Run the command line."""
    try:
        from slatewise.cli import app
    except ModuleNotFoundError as error:
        sys.exit(f"error: the command line needs {error.name}: pip install '.[train]' in the checkout")
    signal.signal(signal.SIGINT, _stop)
    try:
        app()
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: pip install '.[all]' in the checkout"
        sys.exit(f"error: {missing if error.name else error}")
    except EXPLAINED as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            print("interrupted; no partial files were left behind", file=sys.stderr)
        raise


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Unwind everything on Ctrl-C, so that temporary files are removed, and exit with the code shells expect."""
    raise SystemExit(INTERRUPTED)


if __name__ == "__main__":
    main()
