"""Steps of learning, compiled: hundreds of them in one call, during which other threads need not wait for the
interpreter."""

import numpy as np
from numba.extending import overload

from gpnn.engines.compiled import jit
from gpnn.engines.compiled.covariance import is_sum
from gpnn.engines.compiled.predictive import predictive_gradient


@jit
def adam_step(u, gradient, first, second, rate, number, n_steps):
    """The step of that number, from 1, in place. Its length falls to zero over the second half."""
    length = min(1.0, 2 * (1 - number / n_steps) + 0.05)
    for k in range(len(u)):
        first[k] = 0.9 * first[k] + 0.1 * gradient[k]
        second[k] = 0.99 * second[k] + 0.01 * gradient[k] ** 2
        mean, scale = first[k] / (1 - 0.9**number), np.sqrt(second[k] / (1 - 0.99**number))
        u[k] -= length * rate[k] * mean / (scale + 1e-8)


@jit
def descend(
    kernel, batches, X_star, y_star, rows, y, neighbors, u, first, second, rate, number, n_steps, lowest, least, A,
    slope, z, noises, path, share, typical, noise_star=None, noise=None,
):  # fmt: skip
    """As `descent.descend` has it: one step for each of the batches (k, q), `path` gets u after each. Ends before the
    noise variance is below `least` of the kernel's. Returns how many steps there were, and what innovations typically
    are. Other arguments: see `predictive_gradient`."""
    d = rows.shape[1]
    gradient = np.empty(len(u))
    for step in range(len(batches)):
        theta = np.exp(u)
        _to_share(kernel, theta)
        if theta[d + 1] < least * theta[d]:
            return step, typical
        count, innovation = predictive_gradient(
            _at(kernel, theta, d), batches[step], X_star, y_star, rows, y, neighbors, theta[:d], theta[d],
            theta[d + 1], A, slope, z, noises, gradient, share, typical, noise_star, noise,
        )  # fmt: skip
        if count == 0:  # nowhere positive definite: more noise will help
            gradient[:] = 0.0
            gradient[d + 1] = -1.0
        else:
            gradient *= theta / count
            _by_odds(kernel, theta, gradient)
            typical += 0.1 * (innovation - typical)
        adam_step(u, gradient, first, second, rate, number + step, n_steps)
        u[d + 1] = max(u[d + 1], lowest)
        path[step] = u
    return len(batches), typical


def _to_share(kernel, theta):
    """Of a sum of kernels: from share/(1 − share) to the share."""
    raise NotImplementedError


@overload(_to_share)
def _odds_to_share(kernel, theta):
    if not is_sum(kernel):
        return lambda kernel, theta: None

    def of_sum(kernel, theta):
        theta[-1] /= 1 + theta[-1]

    return of_sum


def _by_odds(kernel, theta, gradient):
    raise NotImplementedError


@overload(_by_odds)
def _share_by_odds(kernel, theta, gradient):
    if not is_sum(kernel):
        return lambda kernel, theta, gradient: None

    def of_sum(kernel, theta, gradient):
        gradient[-1] *= 1 - theta[-1]  # dshare = share (1 − share) du

    return of_sum


def _at(kernel, theta, d):
    """What compiled functions are given for the kernel, with θ as it is now."""
    raise NotImplementedError


@overload(_at)
def _kernel_at(kernel, theta, d):
    if not is_sum(kernel):
        return lambda kernel, theta, d: kernel

    def of_sum(kernel, theta, d):
        factors = np.square(theta[:d] / theta[d + 2 : 2 * d + 2])
        return kernel[0], kernel[1], theta[2 * d + 2], factors

    return of_sum
