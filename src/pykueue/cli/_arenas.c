/* Arenas, from which Python takes the memory of its objects, in huge pages of Linux.
 *
 * An arena is a mebibyte, mapped on its own; a huge page of two is used by the kernel only for memory that begins
 * at a multiple of its size and was mapped as a whole. Hence two arenas are mapped together. The kernel's
 * setting transparent_hugepage decides: with "never" nothing changes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)1 << 21)

/* The part of the last huge page that is not an arena yet. Python's lock is held wherever an arena is made. */
static char *rest;
static size_t rest_size;

static char *map(size_t size) {
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Map a huge page as the rest; whether that succeeded. */
static int map_rest(void) {
    char *start = map(2 * HUGE_PAGE);
    if (start == NULL) {
        return 0;
    }
    size_t before = -(uintptr_t)start % HUGE_PAGE;
    if (before > 0) {
        munmap(start, before);
    }
    rest = start + before;
    rest_size = HUGE_PAGE;
    munmap(rest + HUGE_PAGE, HUGE_PAGE - before);
    madvise(rest, HUGE_PAGE, MADV_HUGEPAGE);
    return 1;
}

static void *new_arena(void *Py_UNUSED(context), size_t size) {
    if (HUGE_PAGE % size != 0 || (rest_size < size && !map_rest())) {
        return map(size);
    }
    char *arena = rest;
    rest += size;
    rest_size -= size;
    return arena;
}

static void free_arena(void *Py_UNUSED(context), void *arena, size_t size) {
    munmap(arena, size); /* those that Python had mapped before, too: it does the same */
}

static PyObject *use_huge_pages(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    PyObjectArenaAllocator allocator = {NULL, new_arena, free_arena};
    PyObject_SetArenaAllocator(&allocator);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"use_huge_pages", use_huge_pages, METH_NOARGS, "Ask the kernel for huge pages for all objects from now on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_arenas", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__arenas(void) {
    return PyModule_Create(&module);
}
