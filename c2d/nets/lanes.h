/* Eight floats side by side: what kernels.c, dense.c and convolution.c are written in. */
#ifndef C2D_LANES_H
#define C2D_LANES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if !(defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)) || defined(__clang__)
#error "these loops are for GCC on x86-64 under Linux; elsewhere PyTorch's own operations are used"
#elif defined(__AVX2__) && defined(__FMA__) /* chosen for the whole file */
#define FAST
#elif __GNUC__ >= 12
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default"))) /* wide vectors where the processor has them */
#else
#define FAST __attribute__((target_clones("fma", "default")))
#endif
#define INLINE static inline __attribute__((always_inline))

#define LANES 8

#define INTERFACE 2 /* raised with every change of arguments, here and in compiled.py: older modules are then left aside */

typedef Py_ssize_t Count;
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define LOAD(from) ((Lanes)(*(const Unaligned *)(from)))
#define STORE(to, lanes) (*(Unaligned *)(to) = (lanes))

/* c[i][j] = (or, if `add`, +=) sum over r of a[i*a_row + r*a_step] * b[r*b_row + j], for i < rows, j < 8*vectors */
INLINE void tile(int rows, int vectors, const float *a, Count a_row, Count a_step, const float *b, Count b_row,
                 Count terms, float *c, Count c_row, int add)
{
    Lanes sum[4][4] = {{{0}}};
    for (Count r = 0; r < terms; r++) {
        Lanes row[4];
        for (int v = 0; v < vectors; v++) row[v] = LOAD(b + r * b_row + v * LANES);
        for (int i = 0; i < rows; i++) {
            float factor = a[i * a_row + r * a_step];
            for (int v = 0; v < vectors; v++) sum[i][v] += factor * row[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = c + i * c_row + v * LANES;
            STORE(to, add ? LOAD(to) + sum[i][v] : sum[i][v]);
        }
}

/* A module of these methods that tells its interface. */
INLINE PyObject *module_of(struct PyModuleDef *definition)
{
    PyObject *made = PyModule_Create(definition);
    if (made != NULL && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0) Py_CLEAR(made);
    return made;
}

#endif
