/* Eight floats side by side, on any processor: what kernels.c and dense.c are written in. */
#ifndef C2D_LANES_H
#define C2D_LANES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && __GNUC__ >= 12
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default"))) /* wide vectors where the processor has them */
#else
#define FAST
#endif
#define INLINE static inline __attribute__((always_inline))

#define LANES 8

typedef Py_ssize_t Count;
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define LOAD(from) ((Lanes)(*(const Unaligned *)(from)))
#define STORE(to, lanes) (*(Unaligned *)(to) = (lanes))

#endif
