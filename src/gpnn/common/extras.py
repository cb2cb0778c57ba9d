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


def import_xarray():
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(
            f"Maps are made with xarray ({error}). Install it with: pip install 'gpnn[maps]'"
        ) from error
    return xarray


def import_uvicorn():
    """uvicorn, with Starlette and httptools beside it."""
    try:
        import httptools  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtraError(
            f"Models are served with Starlette and uvicorn ({error}). Install them with: pip install 'gpnn[serve]'"
        ) from error
    return uvicorn
