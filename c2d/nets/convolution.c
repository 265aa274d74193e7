/* The gradients of a convolution, picture by picture, so that all that is needed stays in the processor's cache.
 *
 * x[height][width][channels] and grad[rows][columns][outputs] lie channels last, and so do weights:
 * w[outputs][kernel][kernel][channels]. The pixels that a place of the result sees, its patch, are one row of a matrix;
 * both gradients are products with it. Outputs are a multiple of four, kernel * kernel * channels of eight. Every thread
 * has sums of its own, so their rounding depends on the number of threads. native.py checks what it hands over; PyTorch
 * does the same elsewhere.
 */
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

#define TALL 4
#define WIDE 3

typedef struct {
    Count pictures, height, width, channels, rows, columns, outputs, kernel, stride;
} Shape;

/* the patches of a picture, place by place; a row of a patch is a piece of a row of the picture */
FAST static void gather(const float *restrict x, float *restrict patches, const Shape *s)
{
    Count length = s->kernel * s->channels;
    for (Count r = 0; r < s->rows; r++)
        for (Count c = 0; c < s->columns; c++)
            for (Count k = 0; k < s->kernel; k++, patches += length) {
                const float *piece = x + ((r * s->stride + k) * s->width + c * s->stride) * s->channels;
                for (Count i = 0; i < length; i++) patches[i] = piece[i];
            }
}

/* the other way: every pixel gets the sum of what the patches have for it */
FAST static void scatter(const float *restrict patches, float *restrict x, const Shape *s)
{
    Count length = s->kernel * s->channels;
    memset(x, 0, s->height * s->width * s->channels * sizeof(float));
    for (Count r = 0; r < s->rows; r++)
        for (Count c = 0; c < s->columns; c++)
            for (Count k = 0; k < s->kernel; k++, patches += length) {
                float *piece = x + ((r * s->stride + k) * s->width + c * s->stride) * s->channels;
                for (Count i = 0; i < length; i++) piece[i] += patches[i];
            }
}

/* grad_w[outputs][terms] += grad^T patches */
FAST static void gradient_of_weights(const float *grad, const float *patches, float *grad_w, const Shape *s)
{
    Count places = s->rows * s->columns, terms = s->kernel * s->kernel * s->channels, j = 0;
    for (; j + WIDE * LANES <= terms; j += WIDE * LANES)
        for (Count o = 0; o < s->outputs; o += TALL)
            tile(TALL, WIDE, grad + o, 1, s->outputs, patches + j, terms, places, grad_w + o * terms + j, terms, 1);
    for (; j < terms; j += LANES)
        for (Count o = 0; o < s->outputs; o += TALL)
            tile(TALL, 1, grad + o, 1, s->outputs, patches + j, terms, places, grad_w + o * terms + j, terms, 1);
}

/* patches = grad w */
FAST static void gradient_of_patches(const float *grad, const float *w, float *patches, const Shape *s)
{
    Count places = s->rows * s->columns, terms = s->kernel * s->kernel * s->channels, outputs = s->outputs, j = 0;
    for (; j + WIDE * LANES <= terms; j += WIDE * LANES) {
        Count p = 0;
        for (; p + TALL <= places; p += TALL)
            tile(TALL, WIDE, grad + p * outputs, outputs, 1, w + j, terms, outputs, patches + p * terms + j, terms, 0);
        for (; p < places; p++)
            tile(1, WIDE, grad + p * outputs, outputs, 1, w + j, terms, outputs, patches + p * terms + j, terms, 0);
    }
    for (; j < terms; j += LANES) {
        Count p = 0;
        for (; p + TALL <= places; p += TALL)
            tile(TALL, 1, grad + p * outputs, outputs, 1, w + j, terms, outputs, patches + p * terms + j, terms, 0);
        for (; p < places; p++)
            tile(1, 1, grad + p * outputs, outputs, 1, w + j, terms, outputs, patches + p * terms + j, terms, 0);
    }
}

FAST static void add_rows(const float *restrict from, float *restrict to, Count rows, Count length)
{
    for (Count r = 0; r < rows; r++)
        for (Count i = 0; i < length; i++) to[i] += from[r * length + i];
}

/* gradients(grad, x, w, grad_x, grad_w, grad_bias, the shape, threads); grad_w and grad_bias are zeros at first */
static PyObject *gradients(PyObject *self, PyObject *args)
{
    unsigned long long grad_, x_, w_, grad_x_, grad_w_, grad_bias_;
    Shape s;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKKKnnnnnnnnni", &grad_, &x_, &w_, &grad_x_, &grad_w_, &grad_bias_, &s.pictures,
                          &s.height, &s.width, &s.channels, &s.rows, &s.columns, &s.outputs, &s.kernel, &s.stride,
                          &threads))
        return NULL;
    if (threads > s.pictures) threads = (int)s.pictures;
    const float *grad = (const float *)grad_, *x = (const float *)x_, *w = (const float *)w_;
    float *grad_x = (float *)grad_x_, *grad_w = (float *)grad_w_, *grad_bias = (float *)grad_bias_;
    Count places = s.rows * s.columns, terms = s.kernel * s.kernel * s.channels, weights = s.outputs * terms;
    Count picture = s.height * s.width * s.channels, result = places * s.outputs;
    Count own = weights + s.outputs + places * terms; /* what a thread needs for itself: sums, and room for patches */
    float *scratch = malloc(threads * own * sizeof(float));
    if (scratch == NULL) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        float *sums = scratch + part * own, *patches = sums + weights + s.outputs;
        memset(sums, 0, (weights + s.outputs) * sizeof(float));
        for (Count n = s.pictures * part / threads; n < s.pictures * (part + 1) / threads; n++) {
            const float *g = grad + n * result;
            gather(x + n * picture, patches, &s);
            gradient_of_weights(g, patches, sums, &s);
            add_rows(g, sums + weights, places, s.outputs);
            gradient_of_patches(g, w, patches, &s);
            scatter(patches, grad_x + n * picture, &s);
        }
    }
    for (int part = 0; part < threads; part++) {
        add_rows(scratch + part * own, grad_w, 1, weights);
        add_rows(scratch + part * own + weights, grad_bias, 1, s.outputs);
    }
    Py_END_ALLOW_THREADS;
    free(scratch);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"gradients", gradients, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_convolution", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__convolution(void)
{
    return module_of(&module);
}
