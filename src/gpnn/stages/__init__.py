"""What `fit` does: checks, mean, rows held out, whitening, estimation, refinement, selection, calibration, shapes."""
