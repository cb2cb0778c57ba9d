"""GPnnRegressor: Gaussian-process regression from nearest neighbours, as a scikit-learn estimator.

Open this first. `fit` chooses kernel and metric on rows whose outcome is known, indexes the rows in that metric, and
calibrates; `predict` finds each query's m nearest rows and solves one small Gaussian process there (equations 5–7).
`GPnnRegressor.paper()` is the published recipe instead. The arithmetic lives in the stages.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpnn.common import metrics
from gpnn.common.kernels import KERNELS, get_kernel, get_kernel_or_sum
from gpnn.common.provenance import FitReport, peak_memory
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, make_engine
from gpnn.engines.index import NeighborIndex
from gpnn.engines.parallel import meanwhile
from gpnn.regressor.ensemble import Ensembles
from gpnn.regressor.explaining import Explaining
from gpnn.regressor.joint import JointLaws
from gpnn.regressor.living import Living
from gpnn.regressor.noise import KnownNoise
from gpnn.regressor.scaling import Scaling
from gpnn.regressor.screened import Screened
from gpnn.regressor.streaming import Streaming
from gpnn.regressor.targets import SeveralTargets, same_rows, several
from gpnn.regressor.trees import BESIDE, BesideTrees
from gpnn.stages.calibration import LocalScale
from gpnn.stages.candidates import score
from gpnn.stages.drift import factors_to_come
from gpnn.stages.ensemble import Contender, contenders
from gpnn.stages.estimation import estimate_from_rows
from gpnn.stages.far import Far, answer, warn_of_queries_outside
from gpnn.stages.few import FEW, Fold, cross_fit, in_folds
from gpnn.stages.gaps import FEWEST_JUDGES, learn_far
from gpnn.stages.hiding import check_queries_to_come
from gpnn.stages.holdout import Holdout, hold_out, warn_of_few_rows
from gpnn.stages.judges import MOST_JUDGES, SIZES, Judges, Verdict
from gpnn.stages.mean import MEANS, add_mean, fit_mean, make_mean, means_at
from gpnn.stages.near import Near
from gpnn.stages.noise import check_new_noise, check_noise, known_noise, moments
from gpnn.stages.recalibration import UNCHANGED, rescaled
from gpnn.stages.selection import LARGER_SAMPLES, SUMS, Effort, Sample, choose, settle
from gpnn.stages.shapes import GAUSSIAN, Shape
from gpnn.stages.suspects import Suspects, leave_out_suspects
from gpnn.stages.validation import check_new_rows, check_settings, check_training_data
from gpnn.stages.whitening import Whitener, in_metric_of

_PROBES, _RECALL_PROBES = 1000, 128
_LARGER = 1.5  # times the rows, for a sample to be worth another comparison
_WIDE = 100  # columns; beyond, refining further on more rows overfits (blogfeedback: worse in every split)
WHITENINGS_TRIED = ["diagonal", "ranks", "full"]
_FEWEST_TO_CHOOSE = 200  # rows; below, comparing candidates would compare noise


class GPnnRegressor(
    Scaling, Screened, Explaining, Living, SeveralTargets, KnownNoise, Ensembles, BesideTrees, JointLaws, Streaming
):
    """Gaussian-process regression on 10³ to 10⁸ rows, with calibrated uncertainty.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52"; or a sum of two, such as "matern32+exponential", each with
        lengthscales of its own; "auto" lets held-out rows decide
    n_neighbors : m, the training rows that each prediction uses; "auto" for the fewest that do as well as 400
    whitening : "full" (decorrelate the columns), "diagonal" (scale them), "ranks" (scale their ranks: for skewed ones)
        or "none"; "auto" lets held-out rows decide
    refine : learn a metric where predictions happen, and search neighbours in it: one lengthscale per column, and a
        linear map of the columns where held-out rows gain by it; "columns": lengthscales only
    mean : "constant", "zero", "linear", or any scikit-learn regressor: taken out of y first, added back in the end
    screen_columns : of more than 64 columns, learn from those only that held-out rows show to matter
    target_scale : "identity", "log", "sqrt" or "yeo-johnson": what of y is learned; predictions are in the units of y.
        "auto" lets held-out rows decide where y is skewed
    target_limits : values that intervals of y never pass, such as (0, None); None for no limits; "auto": 0 if no row is
        negative, and ends of y's range that its rows show to be ends
    ensemble : k, how many of the leading candidates (whitening, kernel, with a linear map or without) may answer
        together, each in its own metric, weighed by held-out rows where these gain by more than noise. A prediction
        then costs what all of them cost, about k times as much. 1: the winner alone, as below 2,000 rows
    trees : let boosted trees, or a line that they begin from, have a say in means where held-out rows gain by it, as
        they do where y jumps at thresholds, or is a line and noise; and other trees in widths, where noise differs; not
        below 500 rows, and not where noise or weights of rows are known
    params : Hyperparameters in whitened units; given, they are used as they are and nothing is learned or chosen
    n_blocks, block_size, optimizer : phase 1 where refine=False: w random blocks of s rows, "lbfgs" or the paper's
        "adam" (rate 0.1, 200 steps)
    holdout : which rows stand in for queries, for choice and calibration: "random" rows; "patches" of neighbouring
        rows, if queries will lie in gaps between the data; or a scikit-learn splitter
    calibration_size : c, rows for phase 2; "auto" takes as many as make α's interval tight; 0 leaves phase 2 out
    calibration : "local": a floor under the variances, and an α(x) that follows how rough the data are around x, where
        they predict held-out rows better; "global": one α, as in the paper
    far : answer queries unlike random rows by models learned for gaps, as far as held-out parts of the table advise it
    suspects : "leave out": rows whose y nothing around them supports (−9999, slipped decimals, wild errors), where
        some stand out from all the others, are not learned from; intervals are for a y that is no such error. "keep"
    return_rows : True: calibration rows are training rows too (a random one is only left out of its own prediction).
        False: they are set aside for good, as in the paper
    index : "auto", "exact", "kdtree", "flat", "ivf", or an object such as `gpnn.neighbors.IVF(recall=0.999)`
    engine : where neighbours are found and local systems solved: "cpu"; "gpu" (extra gpnn[gpu]); "reference" (slow,
        plain float64); or an object such as `gpnn.engines.gpu.GPU(device="cuda:1")`. A fitted model predicts on any of
        them: `model.set_params(engine="gpu")`
    unbiased_mean : multiply means (in whitened units) by Γ = (σ_ξ² + mσ_f²)/(mσ_f²), which takes out the shrinkage
        towards the overall mean that remains as n → ∞
    shared_metric : of several targets, y (n, k): True if all are to have one metric, False if each its own; "auto":
        those for which held-out rows show no loss share one, which makes predictions of many as quick as of one
    batch_size : queries that one thread works on at a time; None bounds their memory at about 16 MiB
    n_jobs : threads; None for every core
    random_state : seed of all random choices; the same seed gives the same numbers, whatever n_jobs and batch_size
    verbose : 1 shows progress bars where there is a terminal

    Attributes
    ----------
    kernel_, n_neighbors_ : as given or chosen
    params_ : Hyperparameters after calibration; where there is a lengthscale per column, the whitener contains them,
        and this has 1. Of an ensemble, all that is not said of the whole is the winner's
    alpha_, alpha_interval_ : the calibration factor α, and where it lies with probability 95 %
    floor_ : added to every variance (whitened units), where calibration="local" found that to help
    shape_ : the shape of standardised errors, from which intervals and quantiles are made
    columns_ : numbers of the input columns that the process looks at; None for all
    target_scale_ : the map of y, and its limits; all that is in whitened units is of y on that scale
    whitener_, index_ : what the data were turned into
    mean_ : the fitted mean function
    fit_report_ : seconds of each stage, sizes, candidates tried, the m-curve, the index and its measured recall,
        the most bytes held; "suspicious": the rows farthest off, and whether they were left out; "widened": what
        variances are multiplied by since queries may be of parts of the table, or of times, that no judge is of
    """

    _auto = ("kernel", "n_neighbors", "whitening", "calibration_size", "target_scale")
    _means = MEANS
    shape_: Shape

    def __init__(
        self,
        *,
        kernel: str = "auto",
        n_neighbors: int | str = "auto",
        whitening: str = "auto",
        refine: bool | str = True,
        mean="constant",
        screen_columns: bool = True,
        target_scale: str = "auto",
        target_limits: tuple[float | None, float | None] | str | None = "auto",
        ensemble: int = 1,
        trees: bool = True,
        params: Hyperparameters | None = None,
        n_blocks: int = 10,
        block_size: int = 300,
        optimizer: str = "lbfgs",
        holdout="random",
        calibration_size: int | str = "auto",
        calibration: str = "local",
        far: bool = True,
        suspects: str = "leave out",
        return_rows: bool = True,
        index: str | NeighborIndex = "auto",
        engine: str | Engine = "cpu",
        unbiased_mean: bool = False,
        shared_metric: bool | str = "auto",
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
        self.screen_columns = screen_columns
        self.target_scale = target_scale
        self.target_limits = target_limits
        self.ensemble = ensemble
        self.trees = trees
        self.params = params
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.optimizer = optimizer
        self.holdout = holdout
        self.calibration_size = calibration_size
        self.calibration = calibration
        self.far = far
        self.suspects = suspects
        self.return_rows = return_rows
        self.index = index
        self.engine = engine
        self.unbiased_mean = unbiased_mean
        self.shared_metric = shared_metric
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes) -> GPnnRegressor:
        """The recipe of the paper: one lengthscale from random rows, m = 400, one α from 1000 rows set aside."""
        recipe: dict = {
            "kernel": "exponential", "n_neighbors": 400, "whitening": "full", "refine": False, "optimizer": "adam",
            "calibration_size": 1000, "calibration": "global", "far": False, "trees": False, "suspects": "keep",
            "return_rows": False, "screen_columns": False, "target_scale": "identity", "target_limits": None,
        }  # fmt: skip
        return cls(**(recipe | changes))

    def fit(self, X, y, groups=None, times=None, noise_variance=None, sample_weight=None) -> GPnnRegressor:
        """Learn from X (n, d) and y (n,), or several targets (n, k) with NaN for what is not known: arrays, or frames
        whose column names are then remembered.

        groups (n,): labels, if queries will be of groups that no training row has, such as new patients. times (n,):
        numbers or dates, if they will come after the training rows. noise_variance (n,): what is known of each y's
        noise, in units of y², beside what is learned. sample_weight (n,): a row of weight w is as w rows in its place
        with the same y, its learned noise 1/w of others'. None of these is an input.
        """
        for name in ("fit_report_", "recalibration_", "_ensemble", *BESIDE):  # not fitted until this fit is complete
            self.__dict__.pop(name, None)
        check_settings(self)
        if (targets := several(y)) is not None:
            told = {"groups": groups, "times": times, "noise_variance": noise_variance, "sample_weight": sample_weight}
            return self._fit_targets(X, targets, told)
        self.__dict__.pop("targets_", None)
        X, y = check_training_data(self, X, y)
        queries = check_queries_to_come(self, len(X), groups, times)
        noise, weightless = check_noise(len(X), noise_variance, sample_weight)
        X, y, queries, noise, kept = weightless.taken_from(X, y, queries, noise)
        engine = self._make_engine()
        described = engine.describe()  # it must be there
        report = FitReport(n=len(kept) + len(weightless.rows), d=X.shape[1], jitter=0.0, engine=described)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        with report.stage("columns"):
            self._screen(X, y, engine, report)
        with report.stage("target scale"):
            y = self._scaled(self._used(X), y, noise, engine, report)
        leave_out_suspects(self, X, y, queries, engine, rng, report, noise)
        weightless.number_rows_of(self, kept, report)
        self._n_seen = report["n"]
        self.__dict__.pop("_leader", None)
        self.fit_report_ = dict(report, n_neighbors=self.n_neighbors_, peak_memory=peak_memory())
        return self

    def _fit_without(
        self, suspects: Suspects, X, table, y, queries, engine: Engine, rng, report, noise=None
    ) -> Prediction:
        """The stages, on all rows but the suspects; table: X with the columns that trees alone see. Returns the laws of
        the calibration rows, each from the others."""
        n = len(X)
        with report.stage("hold out"):
            holdout = self._hold_out(X, y, engine, rng)
            X, y, holdout, kept = suspects.left_out_of(X, y, holdout)
        with report.stage("mean"):
            noise = None if noise is None else noise[kept]
            weights = None if noise is None else noise.weights
            self.mean_ = fit_mean(make_mean(self.mean), X, y, weights)
            self._y_scale = moments(y if self.target_scale_.plain else self.target_scale_.back(y), weights)
            rest = self._add_mean(X, y, -1.0)
            self._row_means, y = means_at(self.mean_, y - rest, kept, n), rest
            noise = None if noise is None else noise.in_units_of(moments(y, weights)[1])
            self._typical_noise = float(np.mean(noise.known)) if noise is not None and noise.known.any() else None
        if len(kept) < len(table):
            table = X if self.columns_ is None else table[kept]
        ask_trees = self._ask_trees(queries, noise)
        few = self._grow_few(table, y / np.std(y), holdout.learn) if ask_trees else None
        with report.stage("learn"):
            folds, leading = self._learn(X, y, holdout, engine, rng, report, noise)
        with report.stage("index"):
            engine = self._build_index(X, y, holdout.hidden, engine, rng, report, noise)
        with report.stage("calibrate"):
            verdict = self._calibrate(X, y, holdout, folds, engine, rng, report, noise)
            self._noise = None if engine.noise is None else engine.noise.scaled(self.alpha_)
            engine = engine if noise is None else self._holding_engine()
        self._factors, self._recent, self._n_seen, self._ensemble = UNCHANGED, None, n, None
        with report.stage("far"):
            queries = None if queries is None else queries.of(kept)
            for_far, for_factors, for_trees = rng.spawn(3)
            if ask_trees and self.ensemble == 1:
                trees = meanwhile(self._learn_trees(table, y, verdict, few, for_trees, report), self.n_jobs)
            self._far = self._learn_far(X, y, verdict, queries, engine, for_far, report, noise)
            outcome, near, n_parts = self.whitener_.transform_y(y[verdict.rows]), self._near(), holdout.n_parts
            self._factors = factors_to_come(near, self._far, engine, outcome, verdict.law, n_parts, for_factors)
            report["widened"] = self._factors[0]
        if self.ensemble > 1:
            with report.stage("ensemble"):
                verdict = self._learn_ensemble(leading, X, y, holdout, verdict, engine, rng, report, noise)
                trees = self._learn_trees(table, y, verdict, few, for_trees, report)
        with report.stage("trees"):
            self._take_trees(trees() if ask_trees else None, table, y, verdict, for_trees, report)
        if len(holdout.hidden) and self.return_rows:
            with report.stage("return rows"):
                self._return_rows_to_ensemble(X, y, engine, rng, noise)
                noise = None if noise is None else noise.scaled(self.alpha_)
                engine = self._build_index(X, y, np.zeros(0, np.int64), engine, rng, report, noise)
        suspects.number_rows_of(self, kept)
        if len(verdict.rows):
            report["judged"] = score(metrics.rmse(outcome, verdict.law), metrics.nll(outcome, verdict.law))
        return self._in_units_of_y(X[verdict.rows], verdict.law)

    def predict_distribution(self, X, noise_variance=None, joint: bool = False):
        """The predictive law of y* at each row of X, in the units of y; joint=True: of all as one, JointPrediction.

        noise_variance (q,), or one number: what is known of the noise of y*, if the model was fitted with some; by
        default as much as the training rows have."""
        if "targets_" in self.__dict__ and not joint:
            return self._laws(X, noise_variance)
        check_is_fitted(self)
        if joint:
            return self._joint_law(X, noise_variance)
        X = check_new_rows(self, X)
        law, jitter = self._law(X, self._holding_engine(), check_new_noise(self, len(X), noise_variance))
        self._warn_of_jitter(jitter)
        if self._far is not None and np.isfinite(self._far.mixture.edge):
            warn_of_queries_outside(law.support)
        return law

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

    def _hold_out(self, X, y, engine: Engine, rng) -> Holdout:
        """The rows to learn from and to judge on, and n_neighbors_: fewer than asked for where n is small."""
        n = len(X)
        most = MOST_JUDGES if self.calibration_size == "auto" else int(self.calibration_size)
        asked = int(SIZES[-1] if self.n_neighbors == "auto" else self.n_neighbors)
        whitener = self._whitener(X, y, "diagonal", warn=False) if self.holdout == "patches" else None
        holdout = hold_out(self.holdout, X, y, most, self.return_rows, whitener, engine, rng, self._bar("hold out"))
        self.n_neighbors_ = min(asked, n - len(holdout.hidden))
        used = {"calibration_size": min(most, len(holdout.judge)), "n_neighbors": self.n_neighbors_}
        warn_of_few_rows(n, {name: (getattr(self, name), value) for name, value in used.items()})
        return holdout

    def _learn(self, X, y, holdout: Holdout, engine: Engine, rng, report, noise) -> tuple[list[Fold], list[Contender]]:
        """kernel_, whitener_ and params_: given, estimated as in the paper, or chosen and refined; in folds if few.
        Also the leading candidates, if they may answer together."""
        kernels = list(KERNELS) if self.kernel == "auto" else [self.kernel.split("+")[0]]
        sums = SUMS if self.kernel == "auto" else (self.kernel,) if "+" in self.kernel else ()
        modes = WHITENINGS_TRIED if self.whitening == "auto" else [self.whitening]
        weights = None if noise is None else noise.weights
        if (leader := self.__dict__.get("_leader")) is not None:
            self._adopt(leader, y, weights, report)
            return [], []
        open_questions = self.refine or len(kernels) > 1 or len(modes) > 1
        if self.params is not None or not open_questions or len(X) < _FEWEST_TO_CHOOSE:
            self.kernel_ = "exponential" if self.kernel == "auto" else self.kernel
            self.whitener_, report["whitening"] = self._whitener(X, y, modes[-1], weights=weights), modes[-1]
            self._search_in_metric_of(self.params or self._phase_1(X, y, holdout, report, noise))
            return [], []
        whiteners = {mode: self._whitener(X, y, mode, mode == modes[-1], weights) for mode in modes}
        sample = Sample.draw(X, y, holdout, rng, noise=noise)
        thorough = len(holdout.learn) < _LARGER * len(sample.rows)
        how = Effort(bool(self.refine), self.refine is True, thorough, sums, "+" in self.kernel)
        candidates = tried = choose(sample, whiteners, kernels, how, rng, engine, self._bar("choose"))
        report["candidates"] = [candidate.row() for candidate in candidates]
        more_helps = candidates[0].refined and X.shape[1] <= _WIDE
        for numbers, finalists in LARGER_SAMPLES if more_helps else ():
            larger = Sample.draw(X, y, holdout, rng, numbers, noise)
            if len(larger.rows) < _LARGER * len(sample.rows):
                continue
            sample = larger
            candidates = settle(candidates, sample, whiteners, finalists, rng, engine, self._bar("choose"))
            tried = candidates + tried
            report.setdefault("finalists", []).extend(candidate.row() for candidate in candidates)
        best = candidates[0]
        self.kernel_ = best.kernel
        self.whitener_, report["whitening"] = whiteners[best.whitening].after(best.x_map), best.whitening
        few = best.refined and len(X) < FEW and len(holdout.hidden) == 0 and not best.is_sum
        folds = []
        if few:  # with random numbers of their own: whatever was tried before, folds draw the same
            folds = cross_fit(X, y, holdout, best, self.whitener_, engine, rng.spawn(1)[0], noise)
        self._search_in_metric_of(best.params)
        return folds, contenders(tried, whiteners, self.ensemble)

    def _search_in_metric_of(self, params: Hyperparameters) -> None:
        self.whitener_, self.params_ = in_metric_of(params, self.whitener_)

    def _whitener(self, X, y, mode: str, warn: bool = True, weights: Array | None = None) -> Whitener:
        names = getattr(self, "feature_names_in_", None)
        names = names if names is None or self.columns_ is None else names[self.columns_]
        whitener = Whitener.fit(X, y, mode, names, self.n_jobs, warn, self._bar("whiten"), weights)
        return replace(whitener, y_mean=0.0)  # the mean function has taken out what it wanted to

    def _phase_1(self, X, y, holdout: Holdout, report, noise) -> Hyperparameters:
        settings = self.n_blocks, self.block_size, self.optimizer, self.n_jobs, self._bar("estimate"), noise
        found = estimate_from_rows(X, y, holdout.learn, self.whitener_, get_kernel(self.kernel_), *settings)
        report["likelihood_evaluations"], report["converged"] = found.n_evaluations, found.converged
        return found.params

    def _build_index(self, X, y, hidden, engine: Engine, rng, report, noise) -> Engine:
        """index_ over all rows but those hidden, and the engine that holds it."""
        self._set_aside = hidden
        if (leader := self.__dict__.get("_leader")) is not None and same_rows(leader, len(X), hidden):
            of_rows = None if noise is None else noise[leader.index_.order]
            engine = engine.hold(leader.index_, self.whitener_.transform_y(y)[leader.index_.order], of_rows)
            self.index_, self._y, self._noise = engine.index, engine.y, engine.noise
            report |= {name: leader.fit_report_[name] for name in ("index", "recall")}
            return engine
        rows = engine.whiten(self.whitener_, X, hidden, self._bar("whiten"))
        probes = rng.choice(len(rows), min(len(rows), _PROBES), replace=False)
        seed = int(rng.integers(2**31))
        last = rows[probes[-_RECALL_PROBES:]]  # indexes tune themselves on the first
        y_rows = self.whitener_.transform_y(np.delete(y, hidden))
        noise = None if noise is None else noise[np.delete(np.arange(len(y)), hidden)]
        engine = engine.build(rows, y_rows, self.index, self.n_neighbors_, probes, seed, self._bar("index"), noise)
        self.index_, self._y, self._noise = engine.index, engine.y, engine.noise
        report["index"] = type(self.index_).__name__
        report["recall"] = engine.recall(last, self.n_neighbors_)
        return engine

    def _calibrate(self, X, y, holdout: Holdout, folds: list[Fold], engine: Engine, rng, report, noise) -> Verdict:
        """n_neighbors_ from the m-curve, then α, α(x) and the shape of errors, on the judges."""
        kernel = get_kernel_or_sum(self.kernel_)
        settings = self.whitener_, kernel, self.params_, self.unbiased_mean, self._bar("calibrate")
        judges = Judges(engine, X, y, len(holdout.hidden) > 0, *settings, noise)
        rows = holdout.judge
        if folds:
            judges, rows = in_folds(judges, folds, self.index, self.n_neighbors_)
        size = None if self.calibration_size == "auto" else int(self.calibration_size)
        verdict = judges.verdict(
            rows, self.n_neighbors_, self.n_neighbors == "auto", size, self.calibration == "local", rng, report
        )
        self._take_verdict(verdict, self.params_)
        return verdict

    def _take_verdict(self, verdict: Verdict, params: Hyperparameters) -> None:
        """params: uncalibrated."""
        self.n_neighbors_, self.calibration_rows_ = verdict.n_neighbors, verdict.rows
        self.alpha_, self.alpha_interval_ = verdict.calibration.alpha, verdict.alpha_interval
        self.floor_, self.shape_ = verdict.calibration.floor, verdict.shape
        self._scale: LocalScale | None = verdict.calibration.scale
        self.params_ = params.scaled(self.alpha_)

    def _learn_far(self, X, y, verdict: Verdict, queries, engine: Engine, rng, report, noise) -> Far | None:
        """What answers beyond the support; None if `holdout` says what queries will be like, or nothing was learned."""
        asked = self.far or queries is not None
        if not asked or "candidates" not in report or self.holdout != "random" or len(verdict.rows) < FEWEST_JUDGES:
            return None
        if queries is not None:
            self.shape_ = GAUSSIAN  # what the tails of random rows are like says nothing of theirs
        plain, y = partial(self._whitener, mode=report["whitening"], warn=False), self.whitener_.transform_y(y)
        return learn_far(X, y, self._near(), verdict, queries, plain, engine, rng, self._bar("far"), noise)

    # --- what they share ----------------------------------------------------------------------------------------------

    def _make_engine(self) -> Engine:
        return make_engine(self.engine, self.n_jobs, self.batch_size)

    def _holding_engine(self) -> Engine:
        if "targets_" in self.__dict__:
            raise self._ask_one()
        engine = self._make_engine()
        if not getattr(engine, "searches_shards", False):
            self._refuse_shards()
        if not getattr(engine, "searches_segments", False):
            self._consolidate()
        return engine.hold(self.index_, self._y, self._noise)

    def _near(self) -> Near:
        kernel = get_kernel_or_sum(self.kernel_)
        fitted = self.whitener_, kernel, self.params_, self.n_neighbors_, self.floor_, self._scale
        return Near(*fitted, self.unbiased_mean)

    def _inner_law(self, X, engine: Engine, known=None, near: Near | None = None) -> tuple[Prediction, float]:
        """What `_law` gives, of y on the scale that was learned."""
        table, X = X, self._used(X)
        known = known_noise(known, len(X), self._typical_noise, self.whitener_.y_std)
        settings = self._bar("predict"), known, self._trees, self._widths, table
        law, jitter = answer(near or self._answering(), self._far, engine, X, *settings)
        return self._in_units_of_y(X, rescaled(law, self._factors)), jitter

    def _in_units_of_y(self, X, law: Prediction) -> Prediction:
        law = self.whitener_.inverse(law)
        return replace(law, mean=self._add_mean(X, law.mean))

    def _add_mean(self, X, y: Array, sign: float = 1.0) -> Array:
        return add_mean(self.mean_, X, y, sign, self.n_jobs, self._bar("mean"))

    def _target_scale(self) -> tuple[float, float]:
        return self._y_scale

    def _bar(self, name: str) -> str | None:
        return name if self.verbose else None
