"""GPnnRegressor: Gaussian-process regression from nearest neighbours, as a scikit-learn estimator.

Open this first. `fit` whitens the data, estimates θ̂ on a small subset (phase 1), builds a neighbour index, and
calibrates the variances on held-out rows (phase 2); `predict` finds each query's m nearest rows and solves one small
Gaussian process there (equations 5–7). The arithmetic lives in the stages.
"""

from __future__ import annotations

import warnings
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpnn._contract import DistributionRegressor
from gpnn._parallel import blocks, for_each_block
from gpnn._types import Hyperparameters, Neighbors, Prediction
from gpnn._validation import check_new_rows, check_settings, check_training_data
from gpnn.calibration import variance_factor
from gpnn.errors import GPnnWarning
from gpnn.estimation import estimate
from gpnn.kernels import get_kernel
from gpnn.neighbors import NeighborIndex, make_index, recall
from gpnn.neighbors.cells import Rows
from gpnn.solvers import LocalSolver, make_solver
from gpnn.whitening import Whitener

_WHITEN_ROWS = 65_536
_RECALL_PROBES = 128


class GPnnRegressor(DistributionRegressor):
    """Gaussian-process regression on 10³ to 10⁸ rows, with calibrated uncertainty.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52"
    n_neighbors : m, the training rows that each prediction uses
    whitening : "full" (decorrelate the columns), "diagonal" (scale them) or "none"
    params : Hyperparameters in whitened units; given, they are used as they are and phase 1 is left out
    n_blocks, block_size : w and s, the subset of phase 1 is w random blocks of s rows
    optimizer : "lbfgs", or "adam" as in the paper (rate 0.1, 200 steps)
    calibration_size : c, rows set aside for phase 2 and used for nothing else; 0 leaves phase 2 out
    index : "auto", "exact", "kdtree", "flat", "ivf", or an object such as `gpnn.neighbors.IVF(recall=0.999)`
    solver : "auto", "cpu" (compiled) or "reference" (slow, plain float64)
    unbiased_mean : multiply means (in whitened units) by Γ = (σ_ξ² + mσ_f²)/(mσ_f²), which takes out the shrinkage
        towards the overall mean that remains as n → ∞
    batch_size : queries that one thread works on at a time; None bounds their memory at about 16 MiB
    n_jobs : threads; None for every core
    random_state : seed of the subsets; the same seed gives the same numbers, whatever n_jobs and batch_size
    verbose : 1 shows progress bars where there is a terminal

    Attributes
    ----------
    params_ : Hyperparameters after calibration, in whitened units
    alpha_ : the calibration factor α (1 if calibration_size is 0)
    whitener_, index_ : what the data were turned into
    n_neighbors_ : m, or fewer if there were fewer rows
    fit_report_ : seconds of each stage, sizes, the index and its measured recall, jitter used
    """

    def __init__(
        self,
        *,
        kernel: str = "exponential",
        n_neighbors: int = 400,
        whitening: str = "full",
        params: Hyperparameters | None = None,
        n_blocks: int = 10,
        block_size: int = 300,
        optimizer: str = "lbfgs",
        calibration_size: int = 1000,
        index: str | NeighborIndex = "auto",
        solver: str = "auto",
        unbiased_mean: bool = False,
        batch_size: int | None = None,
        n_jobs: int | None = None,
        random_state=None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.whitening = whitening
        self.params = params
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.optimizer = optimizer
        self.calibration_size = calibration_size
        self.index = index
        self.solver = solver
        self.unbiased_mean = unbiased_mean
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y) -> GPnnRegressor:
        """Learn from X (n, d) and y (n,): arrays, or frames whose column names are then remembered."""
        self.__dict__.pop("fit_report_", None)  # not fitted until this fit is complete
        check_settings(self)
        X, y = check_training_data(self, X, y)
        report = _Report(n=len(X), d=X.shape[1], jitter=0.0)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        held_out, subset = self._draw_rows(len(X), rng)

        with report.stage("whiten"):
            names = getattr(self, "feature_names_in_", None)
            self.whitener_ = Whitener.fit(X, y, self.whitening, names, self.n_jobs)
            rows, y_rows = self._whiten_all_but(held_out, X, y)

        with report.stage("estimate"):
            self.params_ = self.params or self._estimate(X, y, subset, report)

        with report.stage("index"):
            X_held, y_held = self.whitener_.transform(X[held_out]), self.whitener_.transform_y(y[held_out])
            probes = X_held if len(held_out) else rows[rng.choice(len(rows), min(len(rows), 1000), replace=False)]
            spec = make_index(self.index, len(rows), rows.shape[1], self.n_neighbors_)
            seed = int(rng.integers(2**31))
            self.index_ = spec.build(rows, self.n_neighbors_, probes, self.n_jobs, seed, self._bar("index"))
            self._y = y_rows[self.index_.order]
            report["index"] = type(self.index_).__name__
            report["recall"] = self._measure_recall(probes[-_RECALL_PROBES:])  # indexes tune themselves on the first

        with report.stage("calibrate"):
            self.alpha_ = 1.0
            if len(held_out):
                uncalibrated, report["jitter"] = self._predict_whitened(X_held, "calibrate")
                self.alpha_ = variance_factor(y_held, uncalibrated)
                self.params_ = self.params_.scaled(self.alpha_)

        self.fit_report_ = dict(report, n_neighbors=self.n_neighbors_, calibration_size=len(held_out))
        return self

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X, in the units of y."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        prediction, jitter = self._predict_whitened(X, "predict", self.whitener_.transform)
        self._warn_of_jitter(jitter)
        return self.whitener_.inverse(prediction)

    def kneighbors(self, X) -> Neighbors:
        """The training rows (numbers as in `fit`) that a prediction at each row of X uses, and their distances in
        whitened units. Rows set aside for calibration are never among them."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        indices = np.empty((len(X), self.n_neighbors_), np.int64)
        distances = np.empty((len(X), self.n_neighbors_), np.float32)

        def search(part: slice) -> None:
            found = self.index_.query(self.whitener_.transform(X[part]), self.n_neighbors_)
            kept = self.index_.order[found.indices].astype(np.int64)
            # Of the rows kept, number i stood after as many held-out ones as lie before it.
            gaps = self.calibration_rows_ - np.arange(len(self.calibration_rows_))
            indices[part] = kept + np.searchsorted(gaps, kept, side="right")
            distances[part] = found.distances

        for_each_block(search, len(X), self._queries_per_block(), self.n_jobs, self._bar("search"))
        return Neighbors(indices, distances)

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_report_" in self.__dict__

    # --- the steps of fit ---------------------------------------------------------------------------------------------

    def _draw_rows(self, n: int, rng) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows for calibration and rows (w, s) for estimation, disjoint, fewer than asked for where n is small."""
        c = min(self.calibration_size, n // 4)
        s = min(self.block_size, n - c)
        w = max(1, min(self.n_blocks, (n - c) // s))
        self.n_neighbors_ = min(self.n_neighbors, n - c)
        shrunk = {
            "calibration_size": (self.calibration_size, c),
            "n_neighbors": (self.n_neighbors, self.n_neighbors_),
        }
        if self.params is None:
            shrunk |= {"block_size": (self.block_size, s), "n_blocks": (self.n_blocks, w)}
        changes = [f"{name} {asked} → {used}" for name, (asked, used) in shrunk.items() if used < asked]
        if changes:
            warnings.warn(
                f"Only {n} rows, fewer than the settings are made for; used instead: {', '.join(changes)}. "
                "Uncertainties from so few rows are rough.",
                GPnnWarning,
                stacklevel=3,
            )
        drawn = rng.choice(n, c + w * s, replace=False)
        self.calibration_rows_ = np.sort(drawn[:c])
        return self.calibration_rows_, drawn[c:].reshape(w, s)

    def _whiten_all_but(self, held_out, X, y):
        """Whitened rows and targets without those held out, in one array that the index will take over."""
        keep = np.ones(len(X), dtype=bool)
        keep[held_out] = False
        rows = Rows.allocate(len(X) - len(held_out), X.shape[1])
        begins = [block.start - np.searchsorted(held_out, block.start) for block in blocks(len(X), _WHITEN_ROWS)]

        def whiten(block: slice) -> None:
            kept = X[block][keep[block]]
            begin = begins[block.start // _WHITEN_ROWS]
            self.whitener_.transform(kept, out=rows[begin : begin + len(kept)])

        for_each_block(whiten, len(X), _WHITEN_ROWS, self.n_jobs, self._bar("whiten"))
        return rows, self.whitener_.transform_y(y[keep])

    def _estimate(self, X, y, subset, report) -> Hyperparameters:
        w, s = subset.shape
        X_blocks = self.whitener_.transform(X[subset.ravel()]).reshape(w, s, -1)
        found = estimate(
            X_blocks, self.whitener_.transform_y(y[subset]), get_kernel(self.kernel), self.optimizer, self.n_jobs
        )
        report["likelihood_evaluations"] = found.n_evaluations
        report["converged"] = found.converged
        return found.params

    def _measure_recall(self, queries) -> float:
        if self.index_.exact:
            return 1.0
        shares = np.empty(len(queries))

        def compare(part: slice) -> None:
            found = self.index_.query(queries[part], self.n_neighbors_)
            shares[part] = recall(found, self.index_.exact_query(queries[part], self.n_neighbors_))

        for_each_block(compare, len(queries), 16, self.n_jobs)
        return float(shares.mean())

    # --- the one path of every prediction -----------------------------------------------------------------------------

    def _predict_whitened(self, X, name: str, transform=None) -> tuple[Prediction, float]:
        """Prediction in whitened units, and the largest jitter used; `transform` whitens each block if given."""
        solver: LocalSolver = make_solver(self.solver)
        kernel = get_kernel(self.kernel)
        mean, variance, jitter = np.empty((3, len(X)))

        def predict(part: slice) -> None:
            X_star = X[part] if transform is None else transform(X[part])
            neighbors = self.index_.query(X_star, self.n_neighbors_).indices
            mean[part], variance[part], jitter[part] = solver(
                X_star, self.index_.points(neighbors), self._y[neighbors], kernel, self.params_
            )

        for_each_block(predict, len(X), self._queries_per_block(), self.n_jobs, self._bar(name))
        if self.unbiased_mean:
            prior = self.n_neighbors_ * self.params_.kernel_variance
            mean *= (self.params_.noise_variance + prior) / prior  # Γ
        return Prediction(mean, variance), float(jitter.max(initial=0.0))

    def _queries_per_block(self) -> int:
        if self.batch_size is not None:
            return self.batch_size
        return int(np.clip(2**22 // (self.n_neighbors_ * self.n_features_in_), 1, 64))

    def _bar(self, name: str) -> str | None:
        return name if self.verbose else None


class _Report(dict):
    """What `fit` did: facts by name, and "seconds" of each stage."""

    def __init__(self, **facts):
        super().__init__(facts, seconds={})

    def stage(self, name: str) -> _Stage:
        return _Stage(self["seconds"], name)


class _Stage:
    def __init__(self, seconds: dict[str, float], name: str):
        self.seconds, self.name = seconds, name

    def __enter__(self):
        self.start = perf_counter()

    def __exit__(self, *exception):
        self.seconds[self.name] = perf_counter() - self.start
