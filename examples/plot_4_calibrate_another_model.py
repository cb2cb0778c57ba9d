"""
Calibrating another library's model
===================================

The paper's second phase is one factor on the variances, from rows that were held out. It needs nothing of GPnn:
`CalibratedRegressor` puts it around any regressor that gives standard deviations. Here around gradient boosting, which
gives none by itself, so two lines make some: the trees' mean, and the size of their training errors.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import train_test_split

from gpnn import CalibratedRegressor, datasets, metrics


class BoostedWithErrors(RegressorMixin, BaseEstimator):
    """Trees for the mean, and further trees for the logarithm of its squared error on the training rows."""

    def fit(self, X, y):
        self.mean_ = HistGradientBoostingRegressor(max_iter=300, random_state=0).fit(X, y)
        errors = (y - self.mean_.predict(X)) ** 2
        self.log_error_ = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(X, np.log(errors + 1e-12))
        return self

    def predict(self, X, return_std=False):
        mean = self.mean_.predict(X)
        return (mean, np.exp(self.log_error_.predict(X) / 2)) if return_std else mean


X, y = datasets.oakley_ohagan(12_000, noise_variance=6.0, noise="gaussian", random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=4000, random_state=0)

# %%
# scikit-learn's Gaussian process with a guessed noise is the second patient, on as many rows as it can bear.
patients = {
    "gradient boosting\nwith training errors": (BoostedWithErrors(), slice(None)),
    "scikit-learn's GP\nwith a guessed noise": (
        GaussianProcessRegressor(2.5**2 * RBF(4.0), alpha=0.5, optimizer=None, normalize_y=True),
        slice(2500),
    ),
}
levels = np.linspace(0.05, 0.99, 48)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharey=True)
for ax, (name, (patient, rows)) in zip(axes, patients.items(), strict=True):
    calibrated = CalibratedRegressor(patient, calibration_size=500, random_state=0).fit(X[rows], y[rows])
    after = calibrated.predict_distribution(X_test)
    before = metrics.Prediction(after.mean, after.variance / calibrated.alpha_)
    for law, color, label in ((before, "tab:red", "as it came"), (after, "tab:blue", "calibrated")):
        nll, z_squared = metrics.nll(y_test, law), metrics.calibration(y_test, law)
        ax.plot(levels, [metrics.coverage(y_test, law, level) for level in levels], color=color, lw=2,
                label=f"{label}: NLL {nll:.2f}, mean z² {z_squared:.2f}")  # fmt: skip
    ax.plot([0, 1], [0, 1], color="black", lw=1)
    ax.set(title=f"{name}: α = {calibrated.alpha_:.2f}".replace("\n", " "), xlabel="level of the interval")
    ax.legend(loc="best")
axes[0].set_ylabel("share of new rows inside")
print("The means are those of the model itself; only the standard deviations are multiplied, by √α.")
