"""From tables to numbers and back: files as streams of rows, columns encoded by a stored rule, a model of both."""

from gpnn.common.extras import import_pandas

import_pandas()  # everything below stands on pyarrow; say so before Python does

from gpnn.tables.encoder import TableEncoder  # noqa: E402
from gpnn.tables.model import TableModel  # noqa: E402

__all__ = ["TableEncoder", "TableModel"]
