"""The `slatewise` command: errors in one clear sentence, never a traceback for what a user can mend."""

import sys

from slatewise.model_files import CatalogError


def main() -> None:
    """Run the command line."""
    try:
        from slatewise.cli import app
    except ModuleNotFoundError as error:
        sys.exit(f"error: the command line needs {error.name}: pip install 'slatewise[train]'")
    from slatewise.tables import DataError

    try:
        app()
    except (DataError, CatalogError, ArithmeticError, ModuleNotFoundError) as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.strerror or error}: {error.filename}" if error.filename else f"error: {error}")
    except KeyboardInterrupt:
        print("interrupted; nothing was left half done", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
