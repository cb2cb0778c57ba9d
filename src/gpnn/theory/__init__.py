"""What theory says of MSE, calibration and NLL: in closed form (Theorem 1 and what lies behind it) here, by Algorithm 1
in `simulation`. Derivations are in docs/theory.md."""

from gpnn.theory.theorem1 import Performance, exact_limits, expected, limits

__all__ = ["Performance", "exact_limits", "expected", "limits"]
