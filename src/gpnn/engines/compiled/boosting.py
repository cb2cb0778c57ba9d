"""Boosted regression trees, grown leaf by leaf from histograms of binned columns.

A residual is rounded to a whole number of 2⁻²⁵ of the largest, and counted together with its row in one integer: the
number of rows above, the sum of the residuals below, with room for 2¹⁸ of both. One addition serves both, sums are
exact in any order, and of two sisters only the smaller one is counted: the other is what is left of their mother.

Trees say y itself, or, of squares, the logarithm of what they are expected to be: the variance, by its likelihood.
"""

import numpy as np

from gpnn.engines.compiled import inline, jit

_PLACE = 44  # of the number of rows, above the bits of the sum
_ROW, _HALF = 1 << _PLACE, 1 << _PLACE - 1
_FINEST = 1 << 25
_LEAST = 1e-3  # of the squares in a leaf, beside what was expected


@inline
def _rows_in(counted):
    return (counted + _HALF) >> _PLACE


@inline
def _sum_in(counted):
    return counted - (_rows_in(counted) << _PLACE)


@inline
def _residual(y, said, squares):
    """What the next tree is to say: how much y is more; of squares, the slope of their log-likelihood."""
    return y * np.exp(-said) - 1.0 if squares else y - said


@inline
def _loss(y, said, squares):
    return y * np.exp(-said) + said if squares else (y - said) ** 2


@inline
def _of_leaf(residual, squares):
    """What is best for rows with that mean residual."""
    return np.log(max(1.0 + residual, _LEAST)) if squares else residual


@jit
def boost(
    bins, first, y, squares, rows, held, n_trees, rate, n_strongest, n_seen, n_tried, most_leaves, least_rows,
    patience, seed, roots, column, place, value, left, gains,
):  # fmt: skip
    """Grow trees one after another, each to the residuals of those before it.

    bins (d, n): of each value; first (d + 1,): where a column's bins begin among all; squares: whether y is squares,
    about 1 on average; rows, held: numbers of those to learn from, and of those that end it where none of the last
    `patience` trees gained anything; n_seen: columns that each tree sees, the first n_strongest and others drawn anew;
    n_tried: of these, columns that each split is chosen among, drawn anew. Fills roots (t,), and for each node its
    column (−1 for leaves), the last bin that goes left, what a leaf says, and its left child, with the right one
    behind; adds to gains (d,) what splits took off the sum of squares. Returns how many trees and nodes there are.
    """
    n = len(rows)
    said, residual = np.zeros(len(y)), np.empty(len(y))
    counted, ordered = np.zeros(len(y), np.int64), np.empty(n, np.int64)
    order, aside = rows.copy(), np.empty_like(rows)
    counts = np.empty((most_leaves, first[-1]), np.int64)  # of each leaf, in the bins of all columns
    slot, start, stop, node, total, best_column, best_bin = np.empty((7, most_leaves), np.int64)
    gain = np.empty(most_leaves)
    others, tried = np.arange(n_strongest, len(bins)), np.arange(n_seen)
    seen, state = tried.copy(), np.array([seed], np.uint64)
    losses, n_nodes, grown = np.empty(n_trees), 0, 0
    for tree in range(n_trees):
        largest = 0.0
        for i in rows:
            residual[i] = _residual(y[i], said[i], squares)
            largest = max(largest, abs(residual[i]))
        if largest == 0.0:
            break
        unit, whole = largest / _FINEST, 0
        for i in rows:
            counted[i] = _ROW + int(np.rint(residual[i] / unit))
            whole += counted[i]
        order[:] = rows
        if n_seen < len(bins):
            _draw(others, n_seen - n_strongest, state)
            seen[n_strongest:] = np.sort(others[: n_seen - n_strongest])
            tried[:] = seen
        roots[tree] = n_nodes
        slot[0], start[0], stop[0], node[0], total[0] = 0, 0, n, n_nodes, whole
        _count(bins, first, seen, order, counted, ordered, counts[0])
        _draw(tried, n_tried, state)
        gain[0], best_column[0], best_bin[0] = _best_split(counts[0], first, tried[:n_tried], whole, least_rows)
        n_nodes, n_leaves = n_nodes + 1, 1
        while n_leaves < most_leaves:
            leaf = 0
            for other in range(1, n_leaves):
                if gain[other] > gain[leaf]:
                    leaf = other
            if gain[leaf] <= 0:
                break
            k, split, mother, new = best_column[leaf], best_bin[leaf], node[leaf], n_leaves
            gains[k] += gain[leaf] * unit * unit
            column[mother], place[mother], left[mother] = k, split, n_nodes
            begin, end = start[leaf], stop[leaf]
            middle = _part(bins[k], split, order, aside, begin, end)
            start[leaf], stop[leaf], node[leaf] = begin, middle, n_nodes
            start[new], stop[new], node[new] = middle, end, n_nodes + 1
            n_nodes, n_leaves = n_nodes + 2, n_leaves + 1
            small, large = (leaf, new) if middle - begin <= end - middle else (new, leaf)
            slot[large], slot[small] = slot[leaf], new
            mine = order[start[small] : stop[small]]
            _count(bins, first, seen, mine, counted, ordered, counts[slot[small]])
            whole, total[small] = total[leaf], 0
            for i in mine:
                total[small] += counted[i]
            total[large] = whole - total[small]
            counts[slot[large]] -= counts[slot[small]]
            for one in (small, large):
                gain[one] = 0.0
                if stop[one] - start[one] >= 2 * least_rows:
                    _draw(tried, n_tried, state)
                    gain[one], best_column[one], best_bin[one] = _best_split(
                        counts[slot[one]], first, tried[:n_tried], total[one], least_rows
                    )
        for leaf in range(n_leaves):
            at = node[leaf]
            column[at], left[at] = -1, 0
            value[at] = rate * _of_leaf(unit * _sum_in(total[leaf]) / _rows_in(total[leaf]), squares)
            for i in order[start[leaf] : stop[leaf]]:
                said[i] += value[at]
        loss = 0.0
        for i in held:
            at = roots[tree]
            while column[at] >= 0:
                at = left[at] + (bins[column[at], i] > place[at])
            said[i] += value[at]
            loss += _loss(y[i], said[i], squares)
        losses[tree], grown = loss, tree + 1
        if len(held) and tree >= patience and losses[tree + 1 - patience : tree + 1].min() >= losses[tree - patience]:
            break
    return grown, n_nodes


@jit
def _draw(of, n, state):
    """Bring n of them to the front at random (state: of a linear congruential generator)."""
    for j in range(n):
        state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        other = j + int(state[0] >> np.uint64(33)) % (len(of) - j)
        of[j], of[other] = of[other], of[j]


@jit
def _count(bins, first, seen, mine, counted, ordered, into):
    """The rows `mine` and their residuals, in the bins of the columns that are seen."""
    for j in range(len(mine)):
        ordered[j] = counted[mine[j]]
    for k in seen:
        of_column, cells = bins[k], into[first[k] : first[k + 1]]
        cells[:] = 0
        for j in range(len(mine)):
            cells[of_column[mine[j]]] += ordered[j]


@jit
def _best_split(counts, first, tried, total, least_rows):
    """What it gains, its column and the last bin that goes left; 0 for none."""
    all_rows, whole = _rows_in(total), float(_sum_in(total))
    alone = whole * whole / all_rows
    best, best_column, best_bin = alone * (1 + 1e-12), -1, 0  # less is rounding
    for k in tried:
        before = 0
        for at in range(first[k], first[k + 1] - 1):
            if counts[at] == 0:
                continue
            before += counts[at]
            less = _rows_in(before)
            more = all_rows - less
            if less < least_rows:
                continue
            if more < least_rows:
                break
            below = float(_sum_in(before))
            above = whole - below
            explained = below * below / less + above * above / more
            if explained > best:
                best, best_column, best_bin = explained, k, at - first[k]
    return (best - alone if best_column >= 0 else 0.0), best_column, best_bin


@jit
def _part(of_column, split, order, aside, begin, end):
    """Rows begin … end − 1 of `order`, those that go left first, each side in the order that it had."""
    at, others = begin, 0
    for j in range(begin, end):
        i = order[j]
        goes_right = of_column[i] > split
        order[at] = i
        aside[others] = i
        at += 1 - goes_right
        others += goes_right
    order[at:end] = aside[:others]
    return at
