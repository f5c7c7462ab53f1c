"""The error of unusable data, in a module that needs no table library."""


class DataError(ValueError):
    """The data cannot be used as it is; the message says what is wrong, where, and how to fix it.

    Examples
    --------
    >>> from slatewise import DataError
    >>> from slatewise.data.sources import load
    >>> try:
    ...     load("netflix")
    ... except DataError as error:
    ...     print(str(error).partition(";")[0])
    there is no data set 'netflix'
    """
