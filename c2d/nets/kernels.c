/* Normalization of image columns and the order of pixels, each in one or two passes over memory.
 *
 * native.py checks what it hands over, and PyTorch's operations do the same where this is not compiled. Sums are
 * taken in blocks of rows of a fixed size, so that results do not depend on the number of threads. The threads are
 * those of the OpenMP that PyTorch has loaded: nothing is linked here, PyTorch is imported first.
 */
#include "lanes.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define BLOCK 32 /* rows whose sums are taken in float32 before they go to float64 */

typedef int32_t Mask __attribute__((vector_size(4 * LANES)));
#define EXCEPT(mask, lanes) ((Lanes)(~(mask) & (Mask)(lanes)))

INLINE double total(Lanes lanes)
{
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

/* ------------------------------------------------------------------- normalization of image columns, with ReLU
 * x is a matrix [rows, width*channels]: a channels-last picture whose rows of all pictures lie below each other. */

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
                y[j] = v <= 0 ? 0 : v; /* what is no number stays none */
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

static PyObject *column_norm(PyObject *self, PyObject *args)
{
    unsigned long long x_, y_, weight_, bias_, statistics, running_mean_, running_var_;
    Count rows, width, channels;
    double eps, momentum;
    int threads;
    if (!PyArg_ParseTuple(args, "KKnnnKKdKKKdi", &x_, &y_, &rows, &width, &channels, &weight_, &bias_, &eps, &statistics,
                          &running_mean_, &running_var_, &momentum, &threads))
        return NULL;
    const float *x = (const float *)x_, *weight = (const float *)weight_, *bias = (const float *)bias_;
    float *y = (float *)y_, *running_mean = (float *)running_mean_, *running_var = (float *)running_var_;
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
        if (running_mean != NULL) {
            running_mean[w] += (float)(momentum * (mean[w] - running_mean[w]));
            running_var[w] += (float)(momentum * (variance * count / (count - 1) - running_var[w]));
        }
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Count block = 0; block < blocks; block++)
        affine_relu(x + block * BLOCK * stride, y + block * BLOCK * stride, rows_of(block, rows), width, channels,
                    scale, shift);
    Py_END_ALLOW_THREADS;
    free(sums);
    Py_RETURN_NONE;
}

static PyObject *column_norm_backward(PyObject *self, PyObject *args)
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

/* by the statistics of the past instead of the batch's, in place */
static PyObject *running_norm(PyObject *self, PyObject *args)
{
    unsigned long long x, weight_, bias_, mean_, var_;
    Count rows, width, channels;
    double eps;
    if (!PyArg_ParseTuple(args, "KnnnKKKKd", &x, &rows, &width, &channels, &weight_, &bias_, &mean_, &var_, &eps))
        return NULL;
    const float *weight = (const float *)weight_, *bias = (const float *)bias_;
    const float *mean = (const float *)mean_, *var = (const float *)var_;
    float *scale = malloc(2 * width * sizeof(float)), *shift = scale + width;
    if (scale == NULL) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    for (Count w = 0; w < width; w++) {
        scale[w] = (float)(weight[w] / sqrt(var[w] + eps));
        shift[w] = bias[w] - mean[w] * scale[w];
    }
    affine_relu((const float *)x, (float *)x, rows, width, channels, scale, shift);
    Py_END_ALLOW_THREADS;
    free(scale);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------------- pixels */

FAST static void interleave(const uint8_t *restrict planes, float *restrict out, Count channels, Count places,
                            float scale)
{
    if (channels == 4) { /* the usual stack of frames */
        const uint8_t *restrict b = planes + places, *restrict c = b + places, *restrict d = c + places;
        for (Count i = 0; i < places; i++) {
            out[4 * i] = scale * planes[i];
            out[4 * i + 1] = scale * b[i];
            out[4 * i + 2] = scale * c[i];
            out[4 * i + 3] = scale * d[i];
        }
        return;
    }
    for (Count c = 0; c < channels; c++)
        for (Count i = 0; i < places; i++) out[i * channels + c] = scale * planes[c * places + i];
}

/* planes of bytes [pictures, channels, places] as floats [pictures, places, channels] times scale */
static PyObject *channels_last(PyObject *self, PyObject *args)
{
    unsigned long long planes, out;
    Count pictures, channels, places;
    float scale;
    int threads;
    if (!PyArg_ParseTuple(args, "KKnnnfi", &planes, &out, &pictures, &channels, &places, &scale, &threads)) return NULL;
    Count size = channels * places;
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for num_threads(threads) schedule(static) if (pictures > 1)
    for (Count k = 0; k < pictures; k++)
        interleave((const uint8_t *)planes + k * size, (float *)out + k * size, channels, places, scale);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"column_norm", column_norm, METH_VARARGS, NULL},
    {"column_norm_backward", column_norm_backward, METH_VARARGS, NULL},
    {"running_norm", running_norm, METH_VARARGS, NULL},
    {"channels_last", channels_last, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return module_of(&module);
}
