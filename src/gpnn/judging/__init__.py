"""Can this fit be trusted? Measured by diagnostics, drawn by plots, told by the report."""
