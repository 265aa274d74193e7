/* Batch normalization of image columns, with ReLU, in two passes over memory forward and two backward.
 *
 * column_norm.py registers this as an operator, checks what it passes in, and holds the same in PyTorch for machines
 * where this is not compiled. Sums are taken over blocks of a fixed number of rows, so results do not depend on the
 * number of threads. The threads are those of the OpenMP runtime that PyTorch has already loaded: nothing is linked.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#if !(defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)) || defined(__clang__)
#error "this is for GCC on x86-64 under Linux; elsewhere PyTorch's own operations are used"
#elif defined(__AVX2__) && defined(__FMA__) /* chosen for the whole file */
#define FAST
#elif __GNUC__ >= 12
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default"))) /* wide vectors where the processor has them */
#else
#define FAST __attribute__((target_clones("fma", "default")))
#endif

#define INTERFACE 3 /* raised with every change of arguments, here and in __init__.py: older modules are then ignored */
#define LANES 8
#define BLOCK 32 /* rows whose sums are taken in float32 before they are added up in float64 */

typedef Py_ssize_t Count;
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Mask __attribute__((vector_size(4 * LANES)));

#define LOAD(from) ((Lanes)(*(const Unaligned *)(from)))
#define EXCEPT(mask, lanes) ((Lanes)(~(mask) & (Mask)(lanes)))

static inline __attribute__((always_inline)) double total(Lanes lanes)
{
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

/* x is a matrix [rows, width*channels]: images in channels-last memory, the rows of all images one below the other. */

/* sums of x - pivot and of its square over some rows of one image column */
FAST static void column_sums(const float *x, Count rows, Count stride, Count channels, float pivot, double out[2])
{
    Lanes sum = {0}, square = {0}, sum_2 = {0}, square_2 = {0};
    float rest = 0, rest_square = 0;
    for (Count i = 0; i < rows; i++, x += stride) {
        Count j = 0;
        for (; j + 2 * LANES <= channels; j += 2 * LANES) { /* two at a time: neither waits for the other's sum */
            Lanes d = LOAD(x + j) - pivot, d_2 = LOAD(x + j + LANES) - pivot;
            sum += d;
            sum_2 += d_2;
            square += d * d;
            square_2 += d_2 * d_2;
        }
        for (; j < channels; j++) {
            float d = x[j] - pivot;
            rest += d;
            rest_square += d * d;
        }
    }
    out[0] = rest + total(sum + sum_2);
    out[1] = rest_square + total(square + square_2);
}

/* sums of g and g*(x - center) where the ReLU let x through */
FAST static void column_products(const float *g, const float *x, Count rows, Count stride, Count channels, float scale,
                                 float shift, float center, double out[2])
{
    Lanes sum = {0}, product = {0}, sum_2 = {0}, product_2 = {0};
    float rest = 0, rest_product = 0;
    for (Count i = 0; i < rows; i++, x += stride, g += stride) {
        Count j = 0;
        for (; j + 2 * LANES <= channels; j += 2 * LANES) {
            Lanes value = LOAD(x + j), value_2 = LOAD(x + j + LANES);
            Lanes v = EXCEPT(value * scale + shift <= 0, LOAD(g + j));
            Lanes v_2 = EXCEPT(value_2 * scale + shift <= 0, LOAD(g + j + LANES));
            sum += v;
            sum_2 += v_2;
            product += v * (value - center);
            product_2 += v_2 * (value_2 - center);
        }
        for (; j < channels; j++) {
            float v = x[j] * scale + shift <= 0 ? 0 : g[j];
            rest += v;
            rest_product += v * (x[j] - center);
        }
    }
    out[0] = rest + total(sum + sum_2);
    out[1] = rest_product + total(product + product_2);
}

FAST static void affine_relu(const float *x, float *y, Count rows, Count width, Count channels,
                             const float *scale, const float *shift)
{
    for (Count i = 0; i < rows; i++)
        for (Count w = 0; w < width; w++) {
            float a = scale[w], b = shift[w];
            for (Count j = 0; j < channels; j++) {
                float v = x[j] * a + b;
                y[j] = v <= 0 ? 0 : v; /* NaN stays NaN */
            }
            x += channels;
            y += channels;
        }
}

/* scale*g + slope*x + level, with g only where the ReLU let x through */
FAST static void column_gradient(const float *restrict g, const float *restrict x, float *restrict out, Count rows,
                                 Count width, Count channels, const float *scale, const float *shift,
                                 const float *slope, const float *level)
{
    for (Count i = 0; i < rows; i++)
        for (Count w = 0; w < width; w++) {
            float a = scale[w], b = shift[w], p = slope[w], r = level[w];
            for (Count j = 0; j < channels; j++) {
                float u = g[j], v = x[j] * a + b <= 0 ? 0 : u;
                out[j] = a * v + (p * x[j] + r);
            }
            g += channels;
            x += channels;
            out += channels;
        }
}

static Count rows_of(Count block, Count rows)
{
    Count left = rows - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

static void all_blocks(const double *sums, Count blocks, Count width, Count w, double out[2])
{
    out[0] = out[1] = 0.0;
    for (Count block = 0; block < blocks; block++) {
        out[0] += sums[2 * (block * width + w)];
        out[1] += sums[2 * (block * width + w) + 1];
    }
}

/* forward(x, y, rows, width, channels, weight, bias, eps, statistics, threads); statistics: mean, var, scale, shift */
static PyObject *forward(PyObject *self, PyObject *args)
{
    unsigned long long x_, y_, weight_, bias_, statistics;
    Count rows, width, channels;
    double eps;
    int threads;
    if (!PyArg_ParseTuple(args, "KKnnnKKdKi", &x_, &y_, &rows, &width, &channels, &weight_, &bias_, &eps, &statistics,
                          &threads))
        return NULL;
    const float *x = (const float *)x_, *weight = (const float *)weight_, *bias = (const float *)bias_;
    float *y = (float *)y_;
    float *mean = (float *)statistics, *var = mean + width, *scale = var + width, *shift = scale + width;
    Count stride = width * channels, blocks = (rows + BLOCK - 1) / BLOCK;
    double *sums = malloc(2 * blocks * width * sizeof(double));
    if (sums == NULL) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    for (Count w = 0; w < width; w++) { /* a pivot near the mean: the variance does not suffer from its size */
        float pivot = 0;
        for (Count j = 0; j < channels; j++) pivot += x[w * channels + j];
        mean[w] = pivot / (float)channels;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Count block = 0; block < blocks; block++)
        for (Count w = 0; w < width; w++)
            column_sums(x + block * BLOCK * stride + w * channels, rows_of(block, rows), stride, channels, mean[w],
                        sums + 2 * (block * width + w));
    for (Count w = 0; w < width; w++) {
        double both[2], count = (double)rows * channels;
        all_blocks(sums, blocks, width, w, both);
        double beyond = both[0] / count, variance = both[1] / count - beyond * beyond;
        if (variance < 0) variance = 0;
        var[w] = (float)variance;
        mean[w] = (float)(mean[w] + beyond);
        scale[w] = (float)(weight[w] / sqrt(variance + eps));
        shift[w] = bias[w] - mean[w] * scale[w];
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Count block = 0; block < blocks; block++)
        affine_relu(x + block * BLOCK * stride, y + block * BLOCK * stride, rows_of(block, rows), width, channels,
                    scale, shift);
    Py_END_ALLOW_THREADS;
    free(sums);
    Py_RETURN_NONE;
}

/* backward(g, x, out, rows, width, channels, weight, statistics, eps, grad_weight, grad_bias, threads) */
static PyObject *backward(PyObject *self, PyObject *args)
{
    unsigned long long g_, x_, out_, weight_, statistics, grad_weight_, grad_bias_;
    Count rows, width, channels;
    double eps;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKnnnKKdKKi", &g_, &x_, &out_, &rows, &width, &channels, &weight_, &statistics, &eps,
                          &grad_weight_, &grad_bias_, &threads))
        return NULL;
    const float *g = (const float *)g_, *x = (const float *)x_, *weight = (const float *)weight_;
    const float *mean = (const float *)statistics, *var = mean + width, *scale = var + width, *shift = scale + width;
    float *out = (float *)out_, *grad_weight = (float *)grad_weight_, *grad_bias = (float *)grad_bias_;
    Count stride = width * channels, blocks = (rows + BLOCK - 1) / BLOCK;
    double *sums = malloc(2 * blocks * width * sizeof(double) + 2 * width * sizeof(float));
    if (sums == NULL) return PyErr_NoMemory();
    float *slope = (float *)(sums + 2 * blocks * width), *level = slope + width;
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Count block = 0; block < blocks; block++)
        for (Count w = 0; w < width; w++) {
            Count at = block * BLOCK * stride + w * channels;
            column_products(g + at, x + at, rows_of(block, rows), stride, channels, scale[w], shift[w], mean[w],
                            sums + 2 * (block * width + w));
        }
    for (Count w = 0; w < width; w++) { /* dx = scale * (g - mean(g) - xhat * mean(g * xhat)) */
        double both[2], inverse = 1.0 / sqrt(var[w] + eps), per_value = -weight[w] * inverse / ((double)rows * channels);
        all_blocks(sums, blocks, width, w, both);
        grad_bias[w] = (float)both[0];
        grad_weight[w] = (float)(both[1] * inverse);
        double steep = per_value * inverse * inverse * both[1];
        slope[w] = (float)steep;
        level[w] = (float)(per_value * both[0] - steep * mean[w]);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Count block = 0; block < blocks; block++) {
        Count at = block * BLOCK * stride;
        column_gradient(g + at, x + at, out + at, rows_of(block, rows), width, channels, scale, shift, slope, level);
    }
    Py_END_ALLOW_THREADS;
    free(sums);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS, NULL},
    {"backward", backward, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_column_norm", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__column_norm(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0) Py_CLEAR(made);
    return made;
}
