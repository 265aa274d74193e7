/* Screens in gray, the larger of two, shrunk by area: what the emulator and OpenCV do, bit for bit, for the rows, and
 * then the bands of rows, that changed.
 *
 * grays.py and resize.py make the tables and leave it to the emulator and OpenCV where this is not compiled. Products
 * are rounded before they are added, in OpenCV's order (this file is compiled with -ffp-contract=off).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#if !(defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)) || defined(__clang__)
#error "the same bits as OpenCV's were found with GCC on x86-64 under Linux; elsewhere OpenCV itself is used"
#elif defined(__AVX2__) || __GNUC__ < 12
#define FAST
#else
#define FAST __attribute__((target_clones("arch=x86-64-v3", "default"))) /* wide vectors where the processor has them */
#endif

#define INTERFACE 2 /* raised with every change of arguments, here and in compiled.py: an older module is then left aside */

typedef Py_ssize_t Count;

/* Place k of the result is the sum over t of weight[t][k] * pixel[index[t][k]]; places of fewer pixels have
 * weights of 0 at the end, which change no sum. */
typedef struct {
    Count taps, size;
    const int32_t *index;
    const float *weight;
} Table;

/* The larger pixels into `seen`; whether any differs from what was there. */
FAST static int look(const uint8_t *restrict screen, const uint8_t *restrict earlier, uint8_t *restrict seen,
                     Count count)
{
    uint8_t differs = 0;
    if (earlier == NULL)
        for (Count i = 0; i < count; i++) {
            differs |= seen[i] ^ screen[i];
            seen[i] = screen[i];
        }
    else
        for (Count i = 0; i < count; i++) {
            uint8_t larger = screen[i] > earlier[i] ? screen[i] : earlier[i];
            differs |= seen[i] ^ larger;
            seen[i] = larger;
        }
    return differs != 0;
}

FAST static void shrink_row(const uint8_t *restrict row, float *restrict wide, Count width, float *restrict out,
                            Table across)
{
    for (Count i = 0; i < width; i++) wide[i] = row[i];
    for (Count k = 0; k < across.size; k++) out[k] = wide[across.index[k]] * across.weight[k];
    for (Count t = 1; t < across.taps; t++) {
        const int32_t *restrict index = across.index + t * across.size;
        const float *restrict weight = across.weight + t * across.size;
        for (Count k = 0; k < across.size; k++) out[k] += wide[index[k]] * weight[k];
    }
}

FAST static void add_row(const float *restrict row, float weight, float *restrict sum, Count size)
{
    for (Count k = 0; k < size; k++) sum[k] += weight * row[k];
}

FAST static void store_row(const float *restrict sum, uint8_t *restrict out, Count size)
{
    for (Count k = 0; k < size; k++) out[k] = (uint8_t)(int32_t)rintf(sum[k]); /* halves to the even number */
}

/* Rows `from` up to `to` of the frame. Neighboring rows share one row of the screen at most: the last one. */
static void shrink_band(const uint8_t *seen, Count width, uint8_t *frame, Count from, Count to, Table across,
                        Table down, float *scratch)
{
    Count last = -1, size = across.size;
    float *narrow = scratch, *sum = scratch + size, *wide = scratch + 2 * size;
    for (Count k = from; k < to; k++) {
        memset(sum, 0, size * sizeof(float));
        for (Count t = 0; t < down.taps; t++) {
            Count row = down.index[t * down.size + k];
            float weight = down.weight[t * down.size + k];
            if (weight == 0) break;
            if (row != last) shrink_row(seen + row * width, wide, width, narrow, across);
            last = row;
            add_row(narrow, weight, sum, size);
        }
        store_row(sum, frame + k * size, size);
    }
}

/* shrink(screen, earlier or None, seen, frame, width, size, bands, across: index, weight, down: index, weight) */
static PyObject *shrink(PyObject *self, PyObject *args)
{
    Py_buffer screen, earlier, seen, frame, table[4];
    Count width, size, bands;
    if (!PyArg_ParseTuple(args, "y*z*w*w*nnny*y*y*y*", &screen, &earlier, &seen, &frame, &width, &size, &bands, table,
                          table + 1, table + 2, table + 3))
        return NULL;
    Count entries = size * (Count)sizeof(float), rows = size / bands, pixels = seen.len / bands;
    Table across = {table[0].len / entries, size, table[0].buf, table[1].buf};
    Table down = {table[2].len / entries, size, table[2].buf, table[3].buf};
    const uint8_t *now = screen.buf, *before = earlier.buf;
    float *scratch = PyMem_Malloc((2 * size + width) * sizeof(float));
    for (Count k = 0; scratch != NULL && k < bands; k++)
        if (look(now + k * pixels, before == NULL ? NULL : before + k * pixels, (uint8_t *)seen.buf + k * pixels, pixels))
            shrink_band(seen.buf, width, frame.buf, k * rows, (k + 1) * rows, across, down, scratch);
    int failed = scratch == NULL;
    PyMem_Free(scratch);
    Py_buffer *all[] = {&screen, &earlier, &seen, &frame, table, table + 1, table + 2, table + 3};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) PyBuffer_Release(all[i]); /* nothing to do for None */
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* The grays of one row of colors, 256 for an unknown one; whether there is any. */
static int look_up_row(const uint8_t *restrict colors, const uint16_t *restrict table, uint8_t *restrict grays,
                       Count width)
{
    uint16_t all = 0;
    for (Count i = 0; i < width; i++) {
        uint16_t gray = table[colors[i]];
        all |= gray;
        grays[i] = (uint8_t)gray;
    }
    return all >> 8 != 0;
}

/* lookup(colors, seen, table, grays, width) -> whether a color is unknown. Rows that were `seen` keep their grays. */
static PyObject *lookup(PyObject *self, PyObject *args)
{
    Py_buffer colors, seen, table, grays;
    Count width;
    if (!PyArg_ParseTuple(args, "y*w*y*w*n", &colors, &seen, &table, &grays, &width)) return NULL;
    int unknown = 0;
    for (Count k = 0; k < colors.len; k += width) {
        const uint8_t *row = (const uint8_t *)colors.buf + k;
        uint8_t *before = (uint8_t *)seen.buf + k;
        if (memcmp(row, before, width) == 0) continue;
        memcpy(before, row, width);
        unknown |= look_up_row(row, table.buf, (uint8_t *)grays.buf + k, width);
    }
    Py_buffer *all[] = {&colors, &seen, &table, &grays};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) PyBuffer_Release(all[i]);
    return PyBool_FromLong(unknown);
}

static PyMethodDef methods[] = {
    {"shrink", shrink, METH_VARARGS, NULL}, {"lookup", lookup, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_screen", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__screen(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) < 0) Py_CLEAR(made);
    return made;
}
