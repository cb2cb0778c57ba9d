"""Small things that everybody uses: values, errors, kernels, scores, optional packages, where a figure was measured."""
