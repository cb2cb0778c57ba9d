"""Rows that come after `fit`, and rows that go: nothing is learned anew, and predictions use exactly what is there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines import Noise
from gpnn.engines.local import FARTHEST
from gpnn.stages.far import NEIGHBORS, Far
from gpnn.stages.living import LEVEL, WINDOW, Recent, check_forgotten, check_outcomes, outcomes, warn_of_drift
from gpnn.stages.noise import check_new_noise, check_noise
from gpnn.stages.recalibration import recalibrated
from gpnn.stages.validation import check_new_rows


class Living:
    _recent: Recent | None
    _far: Far | None
    _row_means: Array | None

    def partial_fit(self: Any, X, y, noise_variance=None, sample_weight=None, window: int | None = None):
        """Learn rows X (n, d), y (n,) that came after `fit`: they are neighbours from now on. What `fit` learned stays.

        Each is predicted before it is learned, and intervals follow how that went; `alarm_` says when errors have
        outgrown what `fit` learned. window: how many of the newest rows to keep, all others being forgotten.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, noise_variance=noise_variance, sample_weight=sample_weight)
        self._refuse_shards()
        self._refuse_ensemble("partial_fit adds to the rows")
        X = check_new_rows(self, X)
        told = {"noise_variance": noise_variance, "sample_weight": sample_weight}
        if "targets_" in self.__dict__:
            self._each_learns(X, y, told, window)
            return self
        y = check_outcomes(y, len(X))
        self._learn_later(X, y, told, window, np.arange(len(X)), len(X))
        return self

    def _learn_later(self: Any, X, y, told: dict, window: int | None, places: NDArray, n_came: int) -> None:
        """Rows X, which are those in these places of all that came."""
        if window is not None and (not isinstance(window, int | np.integer) or window < self.n_neighbors_):
            raise InvalidInputError(
                f"window = {window!r} must be a whole number, at least the {self.n_neighbors_} neighbours that a "
                "prediction uses."
            )
        self._check_on_scale(y)
        y = self.target_scale_(y)
        if len(X):
            noise = self._noise_of_new(len(X), **told)
            self._follow(X, y, noise)
            self._insert(self._used(X), y, noise, self._n_seen + places)
        if self._row_means is not None and len(self._row_means) < self._n_seen + n_came:
            self._row_means = np.append(self._row_means, np.zeros(self._n_seen + n_came - len(self._row_means)))
        self._n_seen += n_came
        if window is not None and self._n_left > window:
            newest = np.sort(self._live_numbers())[-window:]
            self._remove(lambda numbers: numbers < newest[0])

    def forget(self: Any, rows=None, *, where=None, before: int | None = None):
        """Rows that no prediction uses any more: by their numbers, in the order in which they came through `fit` and
        every `partial_fit`; by a mask over all of them; or all that came before the row of a number."""
        check_is_fitted(self)
        self._refuse_shards()
        self._refuse_ensemble("forget takes from the rows")
        if "targets_" in self.__dict__:
            for model in self.targets_:
                model.forget(rows, where=where, before=before)
            return self
        forgotten = check_forgotten(rows, where, before, self._n_seen)
        self._remove(lambda numbers: np.isin(numbers, forgotten))
        return self

    @property
    def alarm_(self: Any) -> bool:
        """Whether the errors of the latest outcomes have outgrown what `fit` learned: time to fit again."""
        if "targets_" in self.__dict__:
            return any(model.alarm_ for model in self.targets_)
        return self._recent is not None and self._recent.alarm

    def recalibrate(self: Any, X, y, noise_variance=None):
        """Variances and the shape of errors as rows X (n, d) ask for whose outcomes y (n,) came after `fit`, like those
        that will be asked for; means stay as they are. `recalibration_` tells what changed, and if that was needed."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        law, _ = self._inner_law(X, self._holding_engine(), check_new_noise(self, len(X), noise_variance))
        t = self.target_scale_(y)
        self._factors, self.shape_, self.recalibration_ = recalibrated(self._factors, self.shape_, t, law)
        self._recent = None
        return self

    def predictor(self: Any) -> Callable[[Array], tuple[Array, Array]]:
        """`predict(X, return_std=True)` for hot loops: a function of NumPy rows (q, d), with what is the same every
        time done once. It goes on with this fit if the model is fitted again, and is safe from several threads."""
        check_is_fitted(self)
        fitted, engine = copy.copy(self), self._holding_engine()

        def predict(X: Array) -> tuple[Array, Array]:
            X = np.asarray(X, dtype=float)
            if X.ndim != 2 or X.shape[1] != fitted.n_features_in_ or not np.isfinite(X).all():
                check_new_rows(fitted, X)  # says what is wrong with them
            law, _ = fitted._law(X, engine)
            return law.mean, law.std

        return predict

    # --- how ----------------------------------------------------------------------------------------------------------

    def _noise_of_new(self: Any, n: int, noise_variance, sample_weight) -> Noise | None:
        """In whitened units, as a new row's."""
        if noise_variance is not None:
            check_new_noise(self, n, noise_variance)
        if self._noise is None:
            if sample_weight is not None:
                raise InvalidInputError(
                    "sample_weight was given, but not to fit. Fit with sample_weight=… (1 for all)."
                )
            return None
        noise, weightless = check_noise(n, noise_variance, np.ones(n) if sample_weight is None else sample_weight)
        if len(weightless.rows):
            raise InvalidInputError(f"sample_weight is zero in {len(weightless.rows)} rows. Leave them out.")
        assert noise is not None
        noise = noise.in_units_of(self.whitener_.y_std)
        return noise if noise_variance is not None else Noise(noise.share, np.full(n, self._typical_noise or 0.0))

    def _follow(self: Any, X, y, noise: Noise | None) -> None:
        """Factors of the variances, as the new rows ask for; of many, the last ones are enough to tell."""
        X, y, noise = X[-WINDOW:], y[-WINDOW:], None if noise is None else noise[-WINDOW:]
        known = None if noise is None else noise.known * self.whitener_.y_std**2
        law, _ = self._inner_law(X, self._holding_engine(), known)
        levels = np.array([0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
        ends = np.broadcast_to(self._standard_quantile(levels, law), (len(X), 2))
        recent = Recent(factors=self._factors) if self._recent is None else self._recent
        was, self._recent = recent.alarm, outcomes(y, law, self._factors, recent, ends)
        self._factors = self._recent.followed()
        if self._recent.alarm and not was:
            warn_of_drift(self._recent)

    def _insert(self: Any, X, y, noise: Noise | None, numbers: NDArray) -> None:
        rest = self._add_mean(X, y, -1.0)
        if self._row_means is not None:
            means = np.zeros(numbers[-1] + 1)
            means[: len(self._row_means)] = self._row_means
            means[numbers] = y - rest
            self._row_means = means
        columns = {"order": numbers - len(self._set_aside), "y": self.whitener_.transform_y(rest)}
        if noise is not None:
            columns |= vars(noise.scaled(self.alpha_))
        rows = np.asarray(self.whitener_.transform(X), np.float32)
        self._take_over(self._segments().with_rows(rows, columns, self._build()))
        if self._far is not None:
            share = len(self._far.rows) / max(self._n_left - len(X), 1)  # as of the rows before
            some = np.flatnonzero(np.random.default_rng(int(numbers[0])).random(len(X)) < share)
            if len(some):
                new = columns["y"][some], numbers[some], None if noise is None else noise[some]
                kept = np.ones(len(self._far.rows), bool)
                self._far = _changed(self._far, kept, X[some], *new, self.n_jobs)

    def _remove(self: Any, forgotten: Callable[[NDArray], NDArray]) -> None:
        """Rows whose numbers are to be forgotten."""
        out, segments = forgotten(self._numbered(np.arange(len(self.index_.order)))), self._segments()
        out[segments._gone] = False
        places = np.flatnonzero(out)
        left = segments.n_left - len(places)
        if left < self.n_neighbors_:
            raise InvalidInputError(
                f"That would leave {left:,} rows, fewer than the {self.n_neighbors_} neighbours of a prediction. "
                "Forget fewer, or fit again on what is left."
            )
        if len(places):
            self._take_over(segments.without(places, self._build()))
        if self._far is not None:
            kept = ~forgotten(self._far.rows)
            if not kept.all():
                no_rows = self._used(np.zeros((0, self.n_features_in_)))
                nothing = no_rows, np.zeros(0), np.zeros(0, np.int64), _nobody(self._noise)
                self._far = _changed(self._far, kept, *nothing, self.n_jobs) if kept.any() else None

    def _segments(self: Any):
        from gpnn.engines.cpu.neighbors.segments import Segments  # numba comes with it: not before it is needed

        if isinstance(self.index_, Segments):
            return self.index_
        noise = {} if self._noise is None else vars(self._noise)
        return Segments(self.index_, {"order": np.asarray(self.index_.order, np.int64), "y": self._y, **noise})

    def _build(self: Any):
        from gpnn.engines.cpu.neighbors import make_index
        from gpnn.engines.cpu.neighbors.segments import built_by

        return built_by(make_index, self.index, self.n_neighbors_, self.n_jobs)

    def _take_over(self: Any, segments) -> None:
        self.index_, self._y = segments, segments.column("y")
        self._noise = None if self._noise is None else Noise(segments.column("share"), segments.column("known"))

    def _consolidate(self: Any) -> None:
        """One index of the rows that are left, where there are several: for files, devices and a look at all rows."""
        from gpnn.engines.cpu.neighbors.segments import Segments

        if not isinstance(self.__dict__.get("index_"), Segments):
            return
        index, columns = self.index_.consolidated(self._build())
        index.order = columns["order"]
        self.index_, self._y = index, columns["y"]
        self._noise = None if self._noise is None else Noise(columns["share"], columns["known"])

    @property
    def _n_left(self: Any) -> int:
        return getattr(self.index_, "n_left", len(self._y))

    def _live_numbers(self: Any) -> NDArray[np.int64]:
        return np.delete(self._numbered(np.arange(len(self.index_.order))), self._segments()._gone)


_PROBES = 500  # on which an index tunes itself


def _nobody(noise: Noise | None) -> Noise | None:
    return None if noise is None else noise[:0]


def _changed(
    far: Far, kept: NDArray[np.bool_], X: Array, y: Array, numbers: NDArray, noise: Noise | None, n_jobs
) -> Far:
    """The models for gaps with some of their rows, and with new ones X (n, d), y (n,) in whitened units."""
    from gpnn.engines.cpu import CPU

    place, Z = np.cumsum(kept) - 1, far.whitener.transform(X)
    rest, n = y - far.trend(Z), int(kept.sum()) + len(X)
    members = []
    for member in far.members:
        old = np.flatnonzero(kept[member.index.order])
        scaled = np.clip(Z / member.lengthscale, -FARTHEST, FARTHEST).astype(np.float32)
        rows = np.concatenate([member.index.points(old), scaled])
        order = np.append(place[member.index.order[old]], n - len(X) + np.arange(len(X)))
        of_rows = None
        if member.noise is not None and noise is not None:
            of_rows = Noise(*(np.append(getattr(member.noise, k)[old], getattr(noise, k)) for k in ("share", "known")))
        probes, y_rows = np.arange(min(n, _PROBES)), np.append(member.y[old], rest)
        built = CPU(n_jobs).build(rows, y_rows, "auto", min(n, NEIGHBORS), probes, 0, None, of_rows)
        built.index.order = order[built.index.order]
        members.append(replace(member, index=built.index, y=built.y, noise=built.noise))
    return replace(far, members=members, rows=np.append(far.rows[kept], numbers))
