"""What y may be made of: laws of the noise, and scales that turn a Gaussian field into another of equal covariance."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from gpnn.common.types import Array

_DEGREES_OF_FREEDOM = 5  # heavy tails, with a fourth moment so that errors of variances can still be estimated

Law = Callable[[Generator, int | tuple[int, ...]], Array]

NOISES: dict[str, Law] = {  # each of mean 0 and variance 1
    "gaussian": lambda rng, size: rng.standard_normal(size),
    "laplace": lambda rng, size: rng.laplace(scale=np.sqrt(0.5), size=size),
    "student_t": lambda rng, size: (
        rng.standard_t(_DEGREES_OF_FREEDOM, size) * np.sqrt((_DEGREES_OF_FREEDOM - 2) / _DEGREES_OF_FREEDOM)
    ),
}

FIELDS: dict[str, Law] = {  # the factor s, E s² = 1, of a field s·g with g Gaussian: one s for a whole realisation
    "gaussian": lambda rng, size: np.ones(size),
    "student_t": lambda rng, size: np.sqrt((_DEGREES_OF_FREEDOM - 2) / rng.chisquare(_DEGREES_OF_FREEDOM, size)),
}
