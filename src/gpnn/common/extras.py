"""Optional packages: asked for by name, imported where used."""

from gpnn.common.errors import MissingExtraError


def import_pandas():
    """pandas, with pyarrow beside it."""
    try:
        import pandas as pd
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"Tables are read with pandas and pyarrow ({error}). Install them with: pip install 'gpnn[data]'"
        ) from error
    return pd


def import_pooch():
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError(
            f"Data sets are downloaded with pooch ({error}). Install it with: pip install 'gpnn[data]'"
        ) from error
    return pooch
