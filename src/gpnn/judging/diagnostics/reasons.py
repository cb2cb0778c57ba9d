"""Why single rows were predicted as they were, in plain numbers and names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpnn.common.types import Array, Prediction
from gpnn.judging.diagnostics.values import Reason
from gpnn.regressor import GPnnRegressor

DECISIVE = 5


def reasons(
    model: GPnnRegressor, X: Array, law: Prediction, numbers: Iterable, y: Array | None = None, k: int = DECISIVE
) -> tuple[Reason, ...]:
    """Of checked rows X (q, d): the k training rows that decided most, and as many columns. `numbers` and outcomes y
    (where they are known) are those rows' own."""
    found = model._explain(X)
    y_of_rows = found.y if model.target_scale_.plain else model.target_scale_.back(found.y)
    largest = np.argsort(-np.abs(found.weights), axis=1, kind="stable")[:, :k]
    names = [str(name) for name in getattr(model, "feature_names_in_", [f"column {k}" for k in range(X.shape[1])])]
    result = []
    for q, number in enumerate(numbers):
        lines = [(of[q, largest[q]]).tolist() for of in (found.indices, found.weights, y_of_rows)]
        columns = np.argsort(-found.columns[q], kind="stable")[:k]
        result.append(
            Reason(
                row=int(number),
                observed=None if y is None else float(y[q]),
                predicted=float(law.mean[q]),
                sd=float(law.std[q]),
                support=None if law.support is None else float(law.support[q]),
                effective=float(found.effective[q]),
                decisive=tuple({"row": row, "weight": w, "y": value} for row, w, value in zip(*lines, strict=True)),
                columns={names[column]: float(found.columns[q, column]) for column in columns},
            )
        )
    return tuple(result)
