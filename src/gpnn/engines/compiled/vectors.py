"""SIMD vectors inside numba: a vector type and the few operations our compiled loops need.

Numba compiles scalar Python and leaves vectorising to LLVM, which cannot keep the accumulators of a matrix tile in
registers. Here one vector of `LANES[dtype]` numbers is a numba value of its own, so that compiled loops say exactly
what is loaded, kept and stored, on any CPU that LLVM knows.

Arrays are flat, indices count elements, and nothing is bounds-checked: callers own their layout.
"""

import operator
from math import factorial, log

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, models, overload, register_model

_FEATURES = getattr(config, "CPU_FEATURES", None) or llvm.get_host_cpu_features().flatten()  # what numba compiles for
_BYTES = 64 if "+avx512f" in _FEATURES else 32 if "+avx2" in _FEATURES else 16

LANES = {np.dtype(np.float32): _BYTES // 4, np.dtype(np.float64): _BYTES // 8}
"""How many numbers one register holds on this CPU."""

_INDEX = ir.IntType(64)
_LLVM_FLOAT = {types.float32: (ir.FloatType(), "f32"), types.float64: (ir.DoubleType(), "f64")}


class Vector(types.Type):
    """The numba type of a SIMD vector: `lanes` numbers of one floating type."""

    def __init__(self, dtype: types.Float, lanes: int):
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(_LLVM_FLOAT[self.dtype][0], self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, fe_type.llvm)


def _native(dtype: types.Float) -> Vector:
    return Vector(dtype, LANES[np.dtype(dtype.name)])


# --- emitting instructions: (builder, llvm values) -> llvm value ------------------------------------------------------


def _address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _load(builder, address, kind: Vector):
    value = builder.load(builder.bitcast(address, kind.llvm.as_pointer()))
    value.align = kind.dtype.bitwidth // 8
    return value


def _store(builder, value, address, kind: Vector):
    builder.store(value, builder.bitcast(address, kind.llvm.as_pointer())).align = kind.dtype.bitwidth // 8


def _splat(builder, scalar, kind: Vector):
    return _broadcast_lane(builder, builder.insert_element(_undefined(kind), scalar, _int32(0)), 0, kind)


def _broadcast_lane(builder, vector, lane: int, kind: Vector):
    mask = ir.Constant(ir.VectorType(ir.IntType(32), kind.lanes), [lane] * kind.lanes)
    return builder.shuffle_vector(vector, _undefined(kind), mask)


def _undefined(kind: Vector):
    return ir.Constant(kind.llvm, ir.Undefined)


def _int32(value: int):
    return ir.Constant(ir.IntType(32), value)


def _constant(kind: Vector, value: float):
    return ir.Constant(kind.llvm, [float(value)] * kind.lanes)


def _call(builder, name: str, kind: Vector, *args):
    """One of LLVM's own vector functions: fma, sqrt, rint, maxnum, ..."""
    full = f"llvm.{name}.v{kind.lanes}{_LLVM_FLOAT[kind.dtype][1]}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind.llvm, [kind.llvm] * len(args)), full)
    return builder.call(function, args)


def _two_to_the(builder, n, kind: Vector):
    """2ⁿ for a vector of whole numbers, by writing n into the exponent bits."""
    bits, mantissa, bias = (32, 23, 127) if kind.dtype is types.float32 else (64, 52, 1023)
    integers = ir.VectorType(ir.IntType(bits), kind.lanes)
    whole = builder.fptosi(n, integers)
    shifted = builder.shl(
        builder.add(whole, ir.Constant(integers, [bias] * kind.lanes)),
        ir.Constant(integers, [mantissa] * kind.lanes),
    )
    return builder.bitcast(shifted, kind.llvm)


# --- operations on vectors, as seen from numba ------------------------------------------------------------------------


@intrinsic
def load(typingctx, array, index):
    """The register-wide vector that starts at `array[index]`."""
    kind = _native(array.dtype)

    def codegen(context, builder, sig, args):
        return _load(builder, _address(context, builder, sig.args[0], *args), kind)

    return kind(array, types.intp), codegen


@intrinsic
def nth(typingctx, array, number):
    """The vector of that number, of those that the array consists of."""
    kind = _native(array.dtype)

    def codegen(context, builder, sig, args):
        index = builder.mul(args[1], ir.Constant(_INDEX, kind.lanes))
        return _load(builder, _address(context, builder, sig.args[0], args[0], index), kind)

    return kind(array, types.intp), codegen


@intrinsic
def put(typingctx, array, number, vector):
    """In the place of the vector of that number."""

    def codegen(context, builder, sig, args):
        index = builder.mul(args[1], ir.Constant(_INDEX, vector.lanes))
        _store(builder, args[2], _address(context, builder, sig.args[0], args[0], index), vector)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


def lanes_of(array):
    """How many numbers of an array one register holds; only for compiled code."""
    raise NotImplementedError


@overload(lanes_of)
def _lanes_of(array):
    lanes = LANES[np.dtype(array.dtype.name)]
    return lambda array: lanes


@intrinsic
def load16(typingctx, array, index):
    """The sixteen numbers that start at `array[index]`, whatever the register's width (for stored layouts)."""
    kind = Vector(array.dtype, 16)

    def codegen(context, builder, sig, args):
        return _load(builder, _address(context, builder, sig.args[0], *args), kind)

    return kind(array, types.intp), codegen


@intrinsic
def store(typingctx, array, index, vector):
    def codegen(context, builder, sig, args):
        _store(builder, args[2], _address(context, builder, sig.args[0], args[0], args[1]), vector)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def like(typingctx, vector, scalar):
    """A vector of the kind of `vector` with `scalar` in every lane."""

    def codegen(context, builder, sig, args):
        return _splat(builder, args[1], vector)

    return vector(vector, vector.dtype), codegen


@intrinsic
def fma(typingctx, x, y, z):
    """x·y + z"""

    def codegen(context, builder, sig, args):
        return _call(builder, "fma", x, *args)

    return x(x, x, x), codegen


@intrinsic
def less(typingctx, z, x, y):
    """z − x·y"""

    def codegen(context, builder, sig, args):
        return _call(builder, "fma", x, builder.fneg(args[1]), args[2], args[0])

    return x(x, x, x), codegen


@intrinsic
def sqrt(typingctx, x):
    def codegen(context, builder, sig, args):
        return _call(builder, "sqrt", x, *args)

    return x(x), codegen


@intrinsic
def maximum(typingctx, x, y):
    def codegen(context, builder, sig, args):
        return _call(builder, "maxnum", x, *args)

    return x(x, x), codegen


@intrinsic
def where_less(typingctx, x, y, then, otherwise):
    """`then` in the lanes where x < y, `otherwise` in the others."""

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return x(x, x, x, x), codegen


@intrinsic
def mask_below(typingctx, x, bound):
    """The lanes in which x < bound, as the bits of an unsigned integer."""

    def codegen(context, builder, sig, args):
        bits = builder.fcmp_ordered("<", args[0], _splat(builder, args[1], x))
        return builder.zext(builder.bitcast(bits, ir.IntType(x.lanes)), _INDEX)

    return types.uint64(x, x.dtype), codegen


@intrinsic
def trailing_zeros(typingctx, bits):
    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


def _arithmetic(python_operator, method: str):
    @intrinsic
    def operation(typingctx, x, y):
        def codegen(context, builder, sig, args):
            return getattr(builder, method)(*args)

        return x(x, x), codegen

    @overload(python_operator)
    def _(x, y):
        if isinstance(x, Vector) and x == y:
            return lambda x, y: operation(x, y)


for _operator, _method in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_operator, _method)


@intrinsic
def one_minus_exp(typingctx, x):
    """(1 − e^(−x), e^(−x)) for x ≥ 0, both to nearly full relative accuracy.

    e^(−x) = 2ⁿ·(1 + p) with p = e^t − 1 from its power series, t = −x − n·log 2 and |t| ≤ ½ log 2.
    """
    single = x.dtype is types.float32
    degree, largest = (8, 87.0) if single else (14, 708.0)
    high = float(np.float32(0.693145751953125)) if single else 0.6931471803691238  # few bits: n·high is exact
    low = log(2.0) - high

    def codegen(context, builder, sig, args):
        value = builder.fneg(_call(builder, "minnum", x, args[0], _constant(x, largest)))
        n = _call(builder, "rint", x, builder.fmul(value, _constant(x, 1 / log(2.0))))
        t = _call(builder, "fma", x, n, _constant(x, -high), value)
        t = _call(builder, "fma", x, n, _constant(x, -low), t)
        series = _horner(builder, t, [1 / factorial(k) for k in range(2, degree + 1)], x)
        p = _call(builder, "fma", x, builder.fmul(t, t), series, t)
        scale = _two_to_the(builder, n, x)
        rest = builder.fsub(builder.fsub(_constant(x, 1), scale), builder.fmul(scale, p))
        return context.make_tuple(builder, sig.return_type, [rest, _call(builder, "fma", x, scale, p, scale)])

    return types.UniTuple(x, 2)(x), codegen


_HALF_LOG_2 = log(2.0) / 2


def _exp_series(degree: int) -> list[float]:
    """Coefficients of e^t for |t| ≤ ½ log 2."""
    series = np.polynomial.Chebyshev.interpolate(np.exp, degree, [-_HALF_LOG_2, _HALF_LOG_2])
    return list(series.convert(kind=np.polynomial.Polynomial).coef)


_EXP = {types.float32: (_exp_series(6), 25.0, 32, 23), types.float64: (_exp_series(9), 200.0, 64, 52)}
"""The series, the largest x, and the bits of a number and of its mantissa. What is beyond the largest x is as good as
nothing, and products of several such numbers would be denormal, which some processors take a hundred times as long
for."""


@intrinsic
def exp_minus(typingctx, x):
    """e^(−x) for x ≥ 0, in float64 to within some 1e-14 of itself (3e-7 in float32), but not below e^(−200) (e^(−25)):
    half the work of `one_minus_exp`."""
    series, largest, bits, mantissa_bits = _EXP[x.dtype]
    shift = 1.5 * 2.0**mantissa_bits  # added to a small number, it leaves the nearest whole number in the last bits

    def codegen(context, builder, sig, args):
        value = builder.fneg(_call(builder, "minnum", x, args[0], _constant(x, largest)))
        shifted = _call(builder, "fma", x, value, _constant(x, 1 / log(2.0)), _constant(x, shift))
        n = builder.fsub(shifted, _constant(x, shift))
        t = _call(builder, "fma", x, n, _constant(x, -log(2.0)), value)
        integers = ir.VectorType(ir.IntType(bits), x.lanes)
        exponent = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [mantissa_bits] * x.lanes))
        mantissa = builder.bitcast(_horner(builder, t, series, x), integers)
        return builder.bitcast(builder.add(mantissa, exponent), x.llvm)

    return x(x), codegen


def make_polynomial(coefficients: list[float], single_terms: int):
    """A compiled c₀ + c₁x + c₂x² + …; float32 makes do with the first `single_terms` coefficients."""

    @intrinsic
    def polynomial(typingctx, x):
        terms = single_terms if x.dtype is types.float32 else len(coefficients)

        def codegen(context, builder, sig, args):
            return _horner(builder, args[0], coefficients[:terms], x)

        return x(x), codegen

    return polynomial


def _horner(builder, x, coefficients, kind: Vector):
    total = _constant(kind, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = _call(builder, "fma", kind, total, x, _constant(kind, coefficient))
    return total


# --- the three steps of a blocked Cholesky factorisation, kept in registers -------------------------------------------
#
# The matrix is stored in strips of `lanes` rows; inside a strip, columns follow each other, each a vector:
# element (i, k) is array[(i // lanes) * stride + k * lanes + i % lanes].


TILE_COLUMNS = {64: 8, 32: 4, 16: 2}[_BYTES]  # three strips of them leave registers free for the operands


def _make_tile_update(strips: int):
    @intrinsic
    def tile_update(typingctx, array, left, stride, rows, columns, target, start, stop):
        """A tile of `strips` strips × TILE_COLUMNS columns: target −= Σ_{start ≤ k < stop} rows[:, k] · columns[:, k]ᵀ

        `rows` and `columns` are where column 0 of the strips begins, `target` is the tile's first vector; `columns` are
        in the array `left`, the others in `array`, which may be the same.
        """
        kind = _native(array.dtype)
        n_columns = min(TILE_COLUMNS, kind.lanes)

        def codegen(context, builder, sig, args):
            stride, rows, columns, target, start, stop = args[2:]
            data, left_data = (context.make_array(sig.args[i])(context, builder, args[i]).data for i in (0, 1))
            vector_at = lambda index: _load(builder, builder.gep(data, [index]), kind)  # noqa: E731
            offset = lambda base, k: builder.add(base, ir.Constant(_INDEX, k))  # noqa: E731
            tile = [
                [offset(builder.add(target, builder.mul(stride, ir.Constant(_INDEX, s))), c * kind.lanes)
                 for c in range(n_columns)] for s in range(strips)
            ]  # fmt: skip
            before = builder.block
            sums = [[vector_at(index) for index in row] for row in tile]
            loop, after = builder.append_basic_block("k"), builder.append_basic_block("done")
            builder.cbranch(builder.icmp_signed("<", start, stop), loop, after)

            builder.position_at_end(loop)
            k = builder.phi(_INDEX)
            running = [[builder.phi(kind.llvm) for _ in row] for row in sums]
            here = builder.mul(k, ir.Constant(_INDEX, kind.lanes))
            left = [
                builder.fneg(vector_at(builder.add(builder.add(rows, here),
                                                   builder.mul(stride, ir.Constant(_INDEX, s)))))
                for s in range(strips)
            ]  # fmt: skip
            updated = [[None] * n_columns for _ in range(strips)]
            for c in range(n_columns):
                address = builder.gep(left_data, [offset(builder.add(columns, here), c)])
                right = _splat(builder, builder.load(address), kind)
                for s in range(strips):
                    updated[s][c] = _call(builder, "fma", kind, left[s], right, running[s][c])
            following = builder.add(k, ir.Constant(_INDEX, 1))
            builder.cbranch(builder.icmp_signed("<", following, stop), loop, after)
            k.add_incoming(start, before)
            k.add_incoming(following, loop)

            builder.position_at_end(after)
            for s in range(strips):
                for c in range(n_columns):
                    running[s][c].add_incoming(sums[s][c], before)
                    running[s][c].add_incoming(updated[s][c], loop)
                    final = builder.phi(kind.llvm)
                    final.add_incoming(sums[s][c], before)
                    final.add_incoming(updated[s][c], loop)
                    updated[s][c] = final
            for s in range(strips):
                for c in range(n_columns):
                    _store(builder, updated[s][c], builder.gep(data, [tile[s][c]]), kind)
            return context.get_dummy_value()

        return types.void(array, left, *[types.intp] * 6), codegen

    return tile_update


tile_update_1, tile_update_2, tile_update_3 = (_make_tile_update(strips) for strips in (1, 2, 3))


@intrinsic
def factor_diagonal(typingctx, array, block):
    """Cholesky factor of the square block at `array[block]`, in place; its diagonal is kept as 1/L_cc.

    Returns the smallest pivot, which is not positive (or is NaN) if the block is not positive definite.
    """
    kind = _native(array.dtype)

    def codegen(context, builder, sig, args):
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        addresses = [
            builder.gep(data, [builder.add(args[1], ir.Constant(_INDEX, c * kind.lanes))]) for c in range(kind.lanes)
        ]
        columns = [_load(builder, address, kind) for address in addresses]
        smallest = None
        for c in range(kind.lanes):
            pivot = _broadcast_lane(builder, columns[c], c, kind)
            smallest = pivot if smallest is None else _call(builder, "minimum", kind, smallest, pivot)
            inverse = builder.fdiv(_constant(kind, 1), _call(builder, "sqrt", kind, pivot))
            columns[c] = builder.fmul(columns[c], inverse)
            minus = builder.fneg(columns[c])
            for later in range(c + 1, kind.lanes):
                row = _broadcast_lane(builder, columns[c], later, kind)
                columns[later] = _call(builder, "fma", kind, minus, row, columns[later])
            scalar = builder.extract_element(inverse, _int32(c))
            columns[c] = builder.insert_element(columns[c], scalar, _int32(c))
        for column, address in zip(columns, addresses, strict=True):
            _store(builder, column, address, kind)
        return builder.extract_element(smallest, _int32(0))

    return array.dtype(array, types.intp), codegen


@intrinsic
def solve_strip(typingctx, array, left, diagonal, block):
    """The block at `array[block]` times the inverse transpose of the factor at `left[diagonal]`, in place."""
    kind = _native(array.dtype)

    def codegen(context, builder, sig, args):
        data, left_data = (context.make_array(sig.args[i])(context, builder, args[i]).data for i in (0, 1))
        at = lambda k: builder.gep(data, [builder.add(args[3], ir.Constant(_INDEX, k))])  # noqa: E731
        left_at = lambda k: builder.gep(left_data, [builder.add(args[2], ir.Constant(_INDEX, k))])  # noqa: E731
        columns = [_load(builder, at(c * kind.lanes), kind) for c in range(kind.lanes)]
        for c in range(kind.lanes):
            inverse = _splat(builder, builder.load(left_at(c * kind.lanes + c)), kind)
            columns[c] = builder.fmul(columns[c], inverse)
            minus = builder.fneg(columns[c])
            for later in range(c + 1, kind.lanes):
                factor = _splat(builder, builder.load(left_at(c * kind.lanes + later)), kind)
                columns[later] = _call(builder, "fma", kind, minus, factor, columns[later])
        for c, column in enumerate(columns):
            _store(builder, column, at(c * kind.lanes), kind)
        return context.get_dummy_value()

    return types.void(array, left, types.intp, types.intp), codegen


@intrinsic
def sum_lanes(typingctx, x):
    """The sum of a vector's numbers: halves added to each other until one is left."""

    def codegen(context, builder, sig, args):
        total, width = args[0], x.lanes
        while width > 1:
            width //= 2
            indices = ir.VectorType(ir.IntType(32), width)
            low, high = (
                builder.shuffle_vector(total, total, ir.Constant(indices, list(range(start, start + width))))
                for start in (0, width)
            )
            total = builder.fadd(low, high)
        return builder.extract_element(total, _int32(0))

    return x.dtype(x), codegen
