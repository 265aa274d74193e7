/* Dense layers with few rows: products of a large matrix of weights with a narrow one.
 *
 * Libraries for matrix products first copy the large matrix into an order that suits them, which takes as long as
 * a product with 32 rows itself. Here the weights are read where they are, once. Rows and inputs are
 * multiples of eight, and results do not depend on the number of threads.
 * native.py checks what it hands over; PyTorch's operations do the same where this is not compiled.
 */
#include "lanes.h"

#include <stdlib.h>

#define TALL 3      /* outputs at once in the forward product ... */
#define WIDE 4      /* ... and vectors of rows: together as many sums as fit into registers */
#define BATCH_TALL 4
#define BATCH_WIDE 3
#define INPUTS 448  /* weights of an output that are used before the next output's turn */
#define OUTPUTS 128

/* xt = x transposed: inputs `from` up to `to`, some at a time so that both are read and written in whole lines */
FAST static void transpose(const float *restrict x, float *restrict xt, Count batch, Count inputs, Count from, Count to)
{
    for (Count k = from; k < to; k += 16)
        for (Count b = 0; b < batch; b++)
            for (Count i = k; i < (k + 16 < to ? k + 16 : to); i++) xt[i * batch + b] = x[b * inputs + i];
}

/* y[outputs][batch] = w x^T + bias, outputs `from` up to `to` */
FAST static void forward(const float *w, const float *xt, const float *bias, float *y, Count batch, Count inputs,
                         Count from, Count to)
{
    for (Count m = from; m < to; m++)
        for (Count b = 0; b < batch; b++) y[m * batch + b] = bias[m];
    for (Count k = 0; k < inputs; k += INPUTS) {
        Count terms = inputs - k < INPUTS ? inputs - k : INPUTS, m = from;
        for (; m + TALL <= to; m += TALL) {
            Count b = 0;
            for (; b + WIDE * LANES <= batch; b += WIDE * LANES)
                tile(TALL, WIDE, w + m * inputs + k, inputs, 1, xt + k * batch + b, batch, terms, y + m * batch + b, batch, 1);
            for (; b < batch; b += LANES)
                tile(TALL, 1, w + m * inputs + k, inputs, 1, xt + k * batch + b, batch, terms, y + m * batch + b, batch, 1);
        }
        for (; m < to; m++)
            for (Count b = 0; b < batch; b += LANES)
                tile(1, 1, w + m * inputs + k, inputs, 1, xt + k * batch + b, batch, terms, y + m * batch + b, batch, 1);
    }
}

/* grad_x[batch][inputs] = grad w, inputs `from` up to `to`; gt is grad transposed */
FAST static void backward_x(const float *gt, const float *w, float *grad_x, Count batch, Count inputs, Count outputs,
                            Count from, Count to)
{
    for (Count m = 0; m < outputs; m += OUTPUTS) {
        Count terms = outputs - m < OUTPUTS ? outputs - m : OUTPUTS, k = from;
        const float *g = gt + m * batch, *rows = w + m * inputs;
        for (; k + BATCH_WIDE * LANES <= to; k += BATCH_WIDE * LANES)
            for (Count b = 0; b < batch; b += BATCH_TALL)
                tile(BATCH_TALL, BATCH_WIDE, g + b, 1, batch, rows + k, inputs, terms, grad_x + b * inputs + k, inputs, m > 0);
        for (; k < to; k += LANES)
            for (Count b = 0; b < batch; b += BATCH_TALL)
                tile(BATCH_TALL, 1, g + b, 1, batch, rows + k, inputs, terms, grad_x + b * inputs + k, inputs, m > 0);
    }
}

/* grad_w[outputs][inputs] = grad^T x and grad_bias, outputs `from` up to `to` */
FAST static void backward_w(const float *gt, const float *x, float *grad_w, float *grad_bias, Count batch, Count inputs,
                            Count from, Count to)
{
    for (Count m = from; m < to; m++) {
        grad_bias[m] = 0;
        for (Count b = 0; b < batch; b++) grad_bias[m] += gt[m * batch + b];
    }
    Count m = from;
    for (; m + BATCH_TALL <= to; m += BATCH_TALL) {
        Count k = 0;
        for (; k + BATCH_WIDE * LANES <= inputs; k += BATCH_WIDE * LANES)
            tile(BATCH_TALL, BATCH_WIDE, gt + m * batch, batch, 1, x + k, inputs, batch, grad_w + m * inputs + k, inputs, 0);
        for (; k < inputs; k += LANES)
            tile(BATCH_TALL, 1, gt + m * batch, batch, 1, x + k, inputs, batch, grad_w + m * inputs + k, inputs, 0);
    }
    for (; m < to; m++)
        for (Count k = 0; k < inputs; k += LANES)
            tile(1, 1, gt + m * batch, batch, 1, x + k, inputs, batch, grad_w + m * inputs + k, inputs, 0);
}

/* where part `part` of `parts` begins: at a multiple of `unit` */
static Count begin(Count size, Count unit, Count part, Count parts)
{
    Count units = (size + unit - 1) / unit, at = units * part / parts * unit;
    return at < size ? at : size;
}

/* dense(x, w, bias, y, batch, inputs, outputs, threads) */
static PyObject *dense(PyObject *self, PyObject *args)
{
    unsigned long long x, w, bias, y;
    Count batch, inputs, outputs;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKnnni", &x, &w, &bias, &y, &batch, &inputs, &outputs, &threads)) return NULL;
    float *xt = malloc(batch * inputs * sizeof(float));
    if (xt == NULL) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int part = 0; part < threads; part++)
            transpose((const float *)x, xt, batch, inputs, begin(inputs, 16, part, threads),
                      begin(inputs, 16, part + 1, threads));
#pragma omp for schedule(static)
        for (int part = 0; part < threads; part++)
            forward((const float *)w, xt, (const float *)bias, (float *)y, batch, inputs,
                    begin(outputs, TALL, part, threads), begin(outputs, TALL, part + 1, threads));
    }
    Py_END_ALLOW_THREADS;
    free(xt);
    Py_RETURN_NONE;
}

/* dense_backward(gt, x, w, grad_x or 0, grad_w, grad_bias, batch, inputs, outputs, threads) */
static PyObject *dense_backward(PyObject *self, PyObject *args)
{
    unsigned long long gt, x, w, grad_x, grad_w, grad_bias;
    Count batch, inputs, outputs;
    int threads;
    if (!PyArg_ParseTuple(args, "KKKKKKnnni", &gt, &x, &w, &grad_x, &grad_w, &grad_bias, &batch, &inputs, &outputs,
                          &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        if (grad_x != 0)
            backward_x((const float *)gt, (const float *)w, (float *)grad_x, batch, inputs, outputs,
                       begin(inputs, LANES, part, threads), begin(inputs, LANES, part + 1, threads));
        backward_w((const float *)gt, (const float *)x, (float *)grad_w, (float *)grad_bias, batch, inputs,
                   begin(outputs, BATCH_TALL, part, threads), begin(outputs, BATCH_TALL, part + 1, threads));
    }
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"dense", dense, METH_VARARGS, NULL},
    {"dense_backward", dense_backward, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_dense", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__dense(void)
{
    return module_of(&module);
}
