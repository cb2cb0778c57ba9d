"""GPnnRegressor: Gaussian-process regression from nearest neighbours, as a scikit-learn estimator.

Open this first. `fit` chooses kernel and metric on rows whose outcome is known, indexes the rows in that metric, and
calibrates; `predict` finds each query's m nearest rows and solves one small Gaussian process there (equations 5–7).
`GPnnRegressor.paper()` is the published recipe instead. The arithmetic lives in the stages.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpnn.common import metrics
from gpnn.common.errors import GPnnWarning
from gpnn.common.kernels import KERNELS, get_kernel
from gpnn.common.provenance import peak_memory
from gpnn.common.types import Array, Hyperparameters, Neighbors, Prediction
from gpnn.contract import DistributionRegressor
from gpnn.engines.cpu.neighbors import NeighborIndex, make_index, nearest_others, recall
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.cpu.solver import solve_path
from gpnn.engines.local import LocalSolution, LocalSolver, make_solver
from gpnn.engines.parallel import blocks, for_each_block
from gpnn.stages.calibration import Calibration, LocalScale, fit_calibration, interval, variance_factor
from gpnn.stages.estimation import estimate
from gpnn.stages.holdout import Holdout, from_splitter, leave_one_out, patches, set_aside
from gpnn.stages.mean import MEANS, make_mean
from gpnn.stages.selection import LARGER_SAMPLES, Sample, choose, settle
from gpnn.stages.shapes import GAUSSIAN, Shape, fit_shape
from gpnn.stages.validation import check_new_rows, check_settings, check_training_data
from gpnn.stages.whitening import Whitener

_WHITEN_ROWS = 65_536
_RECALL_PROBES = 128
_LARGER = 1.5  # times the rows, for a sample to be worth another comparison
_WIDE = 100  # columns; beyond, refining further on more rows overfits (blogfeedback: worse in every split)
WHITENINGS_TRIED = ["diagonal", "ranks", "full"]
_FEWEST_TO_CHOOSE = 200  # rows; below, comparing candidates would compare noise
_SIZES = np.array([16, 24, 32, 48, 64, 100, 150, 200, 300, 400])  # m is chosen among these
_SIZE_JUDGES = 3000
_FIRST_JUDGES, _FEWER_JUDGES, _MOST_JUDGES = 4000, 6000, 50_000
_TIGHT = 0.04  # half the width of α's interval, relative to α, at which more calibration rows are not worth their time


class GPnnRegressor(DistributionRegressor):
    """Gaussian-process regression on 10³ to 10⁸ rows, with calibrated uncertainty.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52"; "auto" lets held-out rows decide
    n_neighbors : m, the training rows that each prediction uses; "auto" for the fewest that do as well as 400
    whitening : "full" (decorrelate the columns), "diagonal" (scale them), "ranks" (scale their ranks: for skewed ones)
        or "none"; "auto" lets held-out rows decide
    refine : learn one lengthscale per column where predictions happen, and search neighbours in that metric
    mean : "constant", "zero", "linear", or any scikit-learn regressor: taken out of y first, added back in the end
    params : Hyperparameters in whitened units; given, they are used as they are and nothing is learned or chosen
    n_blocks, block_size, optimizer : phase 1 where refine=False: w random blocks of s rows, "lbfgs" or the paper's
        "adam" (rate 0.1, 200 steps)
    holdout : which rows stand in for queries, for choice and calibration: "random" rows; "patches" of neighbouring
        rows, if queries will lie in gaps between the data; or a scikit-learn splitter
    calibration_size : c, rows for phase 2; "auto" takes as many as make α's interval tight; 0 leaves phase 2 out
    calibration : "local": a floor under the variances, and an α(x) that follows how rough the data are around x, where
        they predict held-out rows better; "global": one α, as in the paper
    return_rows : True: calibration rows are training rows too (a random one is only left out of its own prediction).
        False: they are set aside for good, as in the paper
    index : "auto", "exact", "kdtree", "flat", "ivf", or an object such as `gpnn.neighbors.IVF(recall=0.999)`
    solver : "auto", "cpu" (compiled) or "reference" (slow, plain float64)
    unbiased_mean : multiply means (in whitened units) by Γ = (σ_ξ² + mσ_f²)/(mσ_f²), which takes out the shrinkage
        towards the overall mean that remains as n → ∞
    batch_size : queries that one thread works on at a time; None bounds their memory at about 16 MiB
    n_jobs : threads; None for every core
    random_state : seed of all random choices; the same seed gives the same numbers, whatever n_jobs and batch_size
    verbose : 1 shows progress bars where there is a terminal

    Attributes
    ----------
    kernel_, n_neighbors_ : as given or chosen
    params_ : Hyperparameters after calibration; where there is a lengthscale per column, the whitener contains them,
        and this has 1
    alpha_, alpha_interval_ : the calibration factor α, and where it lies with probability 95 %
    floor_ : added to every variance (whitened units), where calibration="local" found that to help
    shape_ : the shape of standardised errors, from which intervals and quantiles are made
    whitener_, index_ : what the data were turned into
    mean_ : the fitted mean function
    fit_report_ : seconds of each stage, sizes, candidates tried, the m-curve, the index and its measured recall,
        the most bytes held
    """

    _auto = ("kernel", "n_neighbors", "whitening", "calibration_size")
    _means = MEANS

    def __init__(
        self,
        *,
        kernel: str = "auto",
        n_neighbors: int | str = "auto",
        whitening: str = "auto",
        refine: bool = True,
        mean="constant",
        params: Hyperparameters | None = None,
        n_blocks: int = 10,
        block_size: int = 300,
        optimizer: str = "lbfgs",
        holdout="random",
        calibration_size: int | str = "auto",
        calibration: str = "local",
        return_rows: bool = True,
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
        self.refine = refine
        self.mean = mean
        self.params = params
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.optimizer = optimizer
        self.holdout = holdout
        self.calibration_size = calibration_size
        self.calibration = calibration
        self.return_rows = return_rows
        self.index = index
        self.solver = solver
        self.unbiased_mean = unbiased_mean
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes) -> GPnnRegressor:
        """The recipe of the paper: one lengthscale from random rows, m = 400, one α from 1000 rows set aside."""
        recipe: dict = {
            "kernel": "exponential", "n_neighbors": 400, "whitening": "full", "refine": False, "optimizer": "adam",
            "calibration_size": 1000, "calibration": "global", "return_rows": False,
        }  # fmt: skip
        return cls(**(recipe | changes))

    def fit(self, X, y) -> GPnnRegressor:
        """Learn from X (n, d) and y (n,): arrays, or frames whose column names are then remembered."""
        self.__dict__.pop("fit_report_", None)  # not fitted until this fit is complete
        check_settings(self)
        X, y = check_training_data(self, X, y)
        report = _Report(n=len(X), d=X.shape[1], jitter=0.0)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        with report.stage("mean"):
            self.mean_ = make_mean(self.mean).fit(X, y)
            self._y_scale = float(np.mean(y)), float(np.std(y))
            y = self._add_mean(X, y, -1.0)
        with report.stage("hold out"):
            holdout = self._hold_out(X, y, rng)
        with report.stage("learn"):
            self._learn(X, y, holdout, rng, report)
        with report.stage("index"):
            self._build_index(X, y, holdout, rng, report)
        with report.stage("calibrate"):
            self._calibrate(X, y, holdout, rng, report)
        if len(holdout.hidden) and self.return_rows:
            with report.stage("return rows"):
                self._build_index(X, y, None, rng, report)
        self.fit_report_ = dict(report, n_neighbors=self.n_neighbors_, peak_memory=peak_memory())
        return self

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X, in the units of y."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        prediction, jitter = self._predict_whitened(X)
        self._warn_of_jitter(jitter)
        prediction = self.whitener_.inverse(prediction)
        return Prediction(self._add_mean(X, prediction.mean), prediction.variance)

    def kneighbors(self, X) -> Neighbors:
        """The training rows (numbers as in `fit`) that a prediction at each row of X uses, and their distances in the
        learned metric. Rows set aside for calibration are never among them."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        indices = np.empty((len(X), self.n_neighbors_), np.int64)
        distances = np.empty((len(X), self.n_neighbors_), np.float32)

        def search(part: slice) -> None:
            found = self.index_.query(self.whitener_.transform(X[part]), self.n_neighbors_)
            kept = self.index_.order[found.indices].astype(np.int64)
            # Of the rows kept, number i stood after as many set aside as lie before it.
            gaps = self._set_aside - np.arange(len(self._set_aside))
            indices[part] = kept + np.searchsorted(gaps, kept, side="right")
            distances[part] = found.distances

        for_each_block(search, len(X), self._queries_per_block(), self.n_jobs, self._bar("search"))
        return Neighbors(indices, distances)

    def save(self, path) -> None:
        """Write the fitted model to one file: no pickle, complete or not there (docs/model_file.md)."""
        from gpnn.files import model as model_file

        model_file.write(path, self)

    @staticmethod
    def load(path, verify: bool = True) -> GPnnRegressor:
        """The model that `save` wrote: the same predictions, bit for bit. Nothing in the file is run.

        Arrays stay in the file and are shared between processes. verify=False leaves out their checksums and opens any
        size at once, for files that are trusted to be whole.
        """
        from gpnn.files import model as model_file

        return model_file.read(path, verify).regressor

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_report_" in self.__dict__

    # --- the stages of fit --------------------------------------------------------------------------------------------

    def _hold_out(self, X, y, rng) -> Holdout:
        """The rows to learn from and to judge on, and n_neighbors_: fewer than asked for where n is small."""
        n = len(X)
        most = _MOST_JUDGES if self.calibration_size == "auto" else int(self.calibration_size)
        asked = int(_SIZES[-1] if self.n_neighbors == "auto" else self.n_neighbors)
        if self.holdout == "patches":
            holdout = patches(
                self._whitener(X, y, "diagonal", warn=False).transform(X), rng, self.n_jobs, self._bar("hold out")
            )
        elif self.holdout != "random":
            holdout = from_splitter(self.holdout, X, y, rng)
        elif self.return_rows or most == 0:
            holdout = leave_one_out(n, rng, max(most, _SIZE_JUDGES))
        else:
            holdout = set_aside(n, rng, min(most, n // 4))
        self.n_neighbors_ = min(asked, n - len(holdout.hidden))
        shrunk = {
            "calibration_size": (self.calibration_size, min(most, len(holdout.judge))),
            "n_neighbors": (self.n_neighbors, self.n_neighbors_),
        }
        changes = [
            f"{name} {asked} → {used}"
            for name, (asked, used) in shrunk.items()
            if not isinstance(asked, str) and used < asked
        ]
        if changes:
            warnings.warn(
                f"Only {n} rows, fewer than the settings are made for; used instead: {', '.join(changes)}. "
                "Uncertainties from so few rows are rough.",
                GPnnWarning,
                stacklevel=3,
            )
        return holdout

    def _learn(self, X, y, holdout: Holdout, rng, report) -> None:
        """kernel_, whitener_ and params_: given, estimated as in the paper, or chosen and refined."""
        kernels = list(KERNELS) if self.kernel == "auto" else [self.kernel]
        modes = WHITENINGS_TRIED if self.whitening == "auto" else [self.whitening]
        open_questions = self.refine or len(kernels) > 1 or len(modes) > 1
        if self.params is not None or not open_questions or len(X) < _FEWEST_TO_CHOOSE:
            self.kernel_ = "exponential" if self.kernel == "auto" else self.kernel
            self.whitener_, report["whitening"] = self._whitener(X, y, modes[-1]), modes[-1]
            self._search_in_metric_of(self.params or self._phase_1(X, y, holdout, rng, report))
            return
        whiteners = {mode: self._whitener(X, y, mode, warn=mode == modes[-1]) for mode in modes}
        sample = Sample.draw(X, y, holdout, rng)
        thorough = len(holdout.learn) < _LARGER * len(sample.rows)
        candidates = choose(sample, whiteners, kernels, self.refine, thorough, rng, self.n_jobs, self._bar("choose"))
        report["candidates"] = [candidate.row() for candidate in candidates]
        more_helps = candidates[0].refined and X.shape[1] <= _WIDE
        for numbers, finalists in LARGER_SAMPLES if more_helps else ():
            larger = Sample.draw(X, y, holdout, rng, numbers)
            if len(larger.rows) < _LARGER * len(sample.rows):
                continue
            sample = larger
            candidates = settle(candidates, sample, whiteners, finalists, rng, self.n_jobs, self._bar("choose"))
            report.setdefault("finalists", []).extend(candidate.row() for candidate in candidates)
        best = candidates[0]
        self.kernel_ = best.kernel
        self.whitener_, report["whitening"] = whiteners[best.whitening], best.whitening
        self._search_in_metric_of(best.params)

    def _search_in_metric_of(self, params: Hyperparameters) -> None:
        """params_; lengthscales by column go into the whitener, so that the nearest rows are the most correlated."""
        self.params_ = params
        if np.ndim(params.lengthscale):
            self.whitener_ = self.whitener_.stretched(1 / np.asarray(params.lengthscale))
            self.params_ = replace(params, lengthscale=1.0)

    def _whitener(self, X, y, mode: str, warn: bool = True) -> Whitener:
        names = getattr(self, "feature_names_in_", None)
        whitener = Whitener.fit(X, y, mode, names, self.n_jobs, warn, self._bar("whiten"))
        return replace(whitener, y_mean=0.0)  # the mean function has taken out what it wanted to

    def _phase_1(self, X, y, holdout: Holdout, rng, report) -> Hyperparameters:
        """θ̂ from the block-diagonal likelihood of w blocks of s random rows, none of them set aside."""
        n = len(holdout.learn)
        s = min(self.block_size, n)
        w = max(1, min(self.n_blocks, n // s))
        subset = holdout.learn[: w * s].reshape(w, s)
        X_blocks = self.whitener_.transform(X[subset.ravel()]).reshape(w, s, -1)
        found = estimate(
            X_blocks,
            self.whitener_.transform_y(y[subset]),
            get_kernel(self.kernel_),
            self.optimizer,
            self.n_jobs,
            self._bar("estimate"),
        )
        report["likelihood_evaluations"] = found.n_evaluations
        report["converged"] = found.converged
        return found.params

    def _build_index(self, X, y, holdout: Holdout | None, rng, report) -> None:
        """index_ over all rows but those hidden."""
        self._set_aside = np.zeros(0, np.int64) if holdout is None else holdout.hidden
        rows, y_rows = self._whiten_all_but(self._set_aside, X, y)
        probes = rows[rng.choice(len(rows), min(len(rows), 1000), replace=False)]
        spec = make_index(self.index, len(rows), rows.shape[1], self.n_neighbors_)
        seed = int(rng.integers(2**31))
        self.index_ = spec.build(rows, self.n_neighbors_, probes, self.n_jobs, seed, self._bar("index"))
        self._y = y_rows[self.index_.order]
        report["index"] = type(self.index_).__name__
        report["recall"] = self._measure_recall(probes[-_RECALL_PROBES:])  # indexes tune themselves on the first

    def _whiten_all_but(self, hidden, X, y):
        """Whitened rows and targets without those hidden, in one array that the index will take over."""
        keep = np.ones(len(X), dtype=bool)
        keep[hidden] = False
        rows = Rows.allocate(len(X) - len(hidden), X.shape[1])
        begins = [block.start - np.searchsorted(hidden, block.start) for block in blocks(len(X), _WHITEN_ROWS)]

        def whiten(block: slice) -> None:
            kept = X[block][keep[block]]
            begin = begins[block.start // _WHITEN_ROWS]
            self.whitener_.transform(kept, out=rows[begin : begin + len(kept)])

        for_each_block(whiten, len(X), _WHITEN_ROWS, self.n_jobs, self._bar("whiten"))
        return rows, self.whitener_.transform_y(y[keep])

    def _measure_recall(self, queries) -> float:
        if self.index_.exact:
            return 1.0
        shares = np.empty(len(queries))

        def compare(part: slice) -> None:
            found = self.index_.query(queries[part], self.n_neighbors_)
            shares[part] = recall(found, self.index_.exact_query(queries[part], self.n_neighbors_))

        for_each_block(compare, len(queries), 16, self.n_jobs, self._bar("recall"))
        return float(shares.mean())

    def _calibrate(self, X, y, holdout: Holdout, rng, report) -> None:
        """n_neighbors_ from the m-curve, then α, α(x) and the shape of errors, on the judges."""
        self.alpha_, self.alpha_interval_, self.floor_ = 1.0, (1.0, 1.0), 0.0
        self._scale: LocalScale | None = None
        self.shape_: Shape = GAUSSIAN
        judge, hidden = holdout.judge, len(holdout.hidden) > 0
        begun: list[LocalSolution] = []
        if self.n_neighbors == "auto" and len(judge):
            begun = [self._choose_size(X, y, judge[:_SIZE_JUDGES], hidden, report)]
        most = self._most_judges() if self.calibration_size == "auto" else int(self.calibration_size)
        judge = judge[:most]
        self.calibration_rows_ = np.sort(judge)
        if len(judge) == 0:
            return
        y_judge, law, innovations, calibration = self._predict_judges(X, y, judge, hidden, begun, report)
        self.calibration_rows_ = np.sort(judge[: len(law)])
        calibrated = calibration(law, innovations)
        low, high = interval(metrics.z_squared(y_judge, calibrated))
        self.alpha_, self.floor_ = calibration.alpha, calibration.floor
        if calibration.scale is not None:  # innovations will be in units of the calibrated variances
            self._scale = replace(calibration.scale, typical=calibration.scale.typical / self.alpha_)
        self.alpha_interval_ = low * self.alpha_, high * self.alpha_
        self.shape_, report["shapes"] = fit_shape((y_judge - law.mean) / calibrated.std, rng)
        self.params_ = self.params_.scaled(self.alpha_)
        report["calibration_size"] = len(law)
        report["alpha_interval"] = self.alpha_interval_
        report["local_neighbors"] = None if self._scale is None else self._scale.n_neighbors

    def _most_judges(self) -> int:
        """Predictions from few neighbours are cheap, and tell the more of heavy tails."""
        return int(np.clip(_FEWER_JUDGES * (250 / self.n_neighbors_) ** 2, _FEWER_JUDGES, _MOST_JUDGES))

    def _predict_judges(self, X, y, judge, hidden: bool, solutions: list[LocalSolution], report):
        """Targets, uncalibrated laws, innovations and calibration of the judges; with "auto", as few as α needs.

        `solutions`: of the first judges, where they are known already.
        """
        done = sum(len(solution.mean) for solution in solutions)
        wanted = min(len(judge), _FIRST_JUDGES) if self.calibration_size == "auto" else len(judge)
        while True:
            chosen = judge[done:wanted]
            if len(chosen):
                X_star, own = self.whitener_.transform(X[chosen]), self._own(chosen, hidden)
                solutions.append(self._predict_path(X_star, own, np.array([self.n_neighbors_])))
            done = wanted
            mean, variance, jitter, innovations = (
                np.concatenate(column)[:done] for column in zip(*solutions, strict=True)
            )
            report["jitter"] = max(report["jitter"], float(jitter.max(initial=0.0)))
            y_judge, law = self.whitener_.transform_y(y[judge[:done]]), Prediction(mean[:, 0], variance[:, 0])
            calibration = self._fit_calibration(y_judge, law, innovations)
            z_squared = metrics.z_squared(y_judge, calibration(law, innovations))
            low, high = interval(z_squared)
            if done == len(judge) or high - low < 2 * _TIGHT * np.mean(z_squared):
                return y_judge, law, innovations, calibration
            wanted = min(2 * wanted, len(judge))

    def _fit_calibration(self, y_judge, law: Prediction, innovations) -> Calibration:
        if self.calibration == "local":
            return fit_calibration(y_judge, law, innovations)
        return Calibration(variance_factor(y_judge, law))

    def _choose_size(self, X, y, judge, hidden: bool, report) -> LocalSolution:
        """n_neighbors_, the fewest neighbours that predict the judges as well as any number does; their predictions."""
        sizes = np.append(_SIZES[self.n_neighbors_ > _SIZES], self.n_neighbors_)
        solution = self._predict_path(self.whitener_.transform(X[judge]), self._own(judge, hidden), sizes)
        y_judge = self.whitener_.transform_y(y[judge])
        curve = []
        for m, mean, variance in zip(sizes, solution.mean.T, solution.variance.T, strict=True):
            law, innovations = Prediction(mean, variance), solution.innovations[:, :m]
            law = fit_calibration(y_judge, law, innovations)(law, innovations)
            curve.append({"n_neighbors": int(m), "rmse": metrics.rmse(y_judge, law), "nll": metrics.nll(y_judge, law)})
        best_rmse, best_nll = (min(point[name] for point in curve) for name in ("rmse", "nll"))
        good = [p for p in curve if p["rmse"] <= 1.005 * best_rmse and p["nll"] <= best_nll + 0.005]
        chosen = good[0] if good else min(curve, key=lambda point: point["rmse"] / best_rmse + point["nll"] - best_nll)
        self.n_neighbors_ = int(chosen["n_neighbors"])
        report["m_curve"] = curve
        at = curve.index(chosen)
        mean, variance = solution.mean[:, at : at + 1], solution.variance[:, at : at + 1]
        return LocalSolution(mean, variance, solution.jitter, solution.innovations[:, : self.n_neighbors_])

    @staticmethod
    def _own(rows, hidden: bool) -> NDArray:
        """Which row of the index each of these is; −1: none, they are hidden."""
        return np.full(len(rows), -1) if hidden else rows

    # --- the paths of every prediction --------------------------------------------------------------------------------

    def _predict_path(self, X_star, own, sizes: NDArray) -> LocalSolution:
        """Uncalibrated means and variances (q, k) of training rows from their nearest others, for each of `sizes`."""
        sizes = np.minimum(sizes, len(self.index_.order) - 1)
        m = int(sizes[-1])
        mean, variance = np.empty((2, len(X_star), len(sizes)))
        jitter, innovations = np.empty(len(X_star)), np.empty((len(X_star), m), np.float32)
        kernel = get_kernel(self.kernel_)

        def predict(part: slice) -> None:
            neighbors = nearest_others(self.index_, X_star[part], own[part], m)
            mean[part], variance[part], jitter[part], innovations[part] = solve_path(
                X_star[part], self.index_.points(neighbors), self._y[neighbors], kernel, self.params_, sizes
            )

        for_each_block(predict, len(X_star), self._queries_per_block(), self.n_jobs, self._bar("calibrate"))
        return LocalSolution(mean * self._unbiasing(sizes), variance, jitter, innovations)

    def _predict_whitened(self, X) -> tuple[Prediction, float]:
        """Prediction in whitened units, and the largest jitter used."""
        solver: LocalSolver = make_solver(self.solver)
        kernel = get_kernel(self.kernel_)
        mean, variance, jitter = np.empty((3, len(X)))

        def predict(part: slice) -> None:
            X_star = self.whitener_.transform(X[part])
            neighbors = self.index_.query(X_star, self.n_neighbors_).indices
            mean[part], variance[part], jitter[part], innovations = solver(
                X_star, self.index_.points(neighbors), self._y[neighbors], kernel, self.params_
            )
            if self._scale is not None:
                variance[part] *= self._scale(innovations)
            variance[part] += self.floor_

        for_each_block(predict, len(X), self._queries_per_block(), self.n_jobs, self._bar("predict"))
        return Prediction(mean * self._unbiasing(self.n_neighbors_), variance), float(jitter.max(initial=0.0))

    def _unbiasing(self, m):
        """Γ"""
        prior = m * self.params_.kernel_variance
        return (self.params_.noise_variance + prior) / prior if self.unbiased_mean else 1.0

    def _add_mean(self, X, y: Array, sign: float = 1.0) -> Array:
        """y plus (or minus) the mean function at X."""
        total = np.array(y, dtype=float)

        def add(part: slice) -> None:
            total[part] += sign * self.mean_.predict(X[part])

        for_each_block(add, len(X), _WHITEN_ROWS, self.n_jobs, self._bar("mean"))
        return total

    def _standard_quantile(self, levels: Array, law: Prediction) -> Array:
        return self.shape_.quantile(levels)

    def _target_scale(self) -> tuple[float, float]:
        return self._y_scale

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
