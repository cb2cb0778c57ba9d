"""The same shards on many machines: GPnnRegressor for dask arrays and data frames (extra gpnn[dask], docs/scaling.md).

Dask schedules everything; what workers do is in `tasks`. The model is a folder that every worker can map, so a worker
that is lost takes nothing with it but the task that it was at, and that is done again, with the same result.
"""

from gpnn.common.errors import MissingExtraError

try:
    import dask  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f"Clusters are run by Dask ({error}). Install it with: pip install 'gpnn[dask]'") from error

from gpnn.dask.estimator import DaskGPnnRegressor

__all__ = ["DaskGPnnRegressor"]
