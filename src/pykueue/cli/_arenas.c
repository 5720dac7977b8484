/* Arenas, from which Python takes the memory of its objects, in huge pages of Linux.
 *
 * An arena is a mebibyte, mapped on its own; a huge page of two is used by the kernel only for memory that begins
 * at a multiple of its size and was mapped as a whole. Hence two arenas are mapped together, from when there are
 * many. The kernel's setting transparent_hugepage decides: with "never" nothing changes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <sys/mman.h>

#define ARENA ((size_t)1 << 20)
#define HUGE_PAGE (2 * ARENA)
/* Arenas that a process has before it gets any in huge pages: small ones gain no time, and lose half a page. */
#define FEW 48

/* The second half of the last huge page, and how many arenas there are. Python's lock is held wherever an arena is
 * made or freed. */
static char *spare;
static size_t arenas;

static void *map(size_t size) {
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* A huge page, of which the second half is the spare one; NULL where there is no memory for it. */
static char *map_pair(void) {
    char *start = map(2 * HUGE_PAGE);
    if (start == NULL) {
        return NULL;
    }
    size_t before = -(uintptr_t)start % HUGE_PAGE;
    if (before > 0) {
        munmap(start, before);
    }
    start += before;
    munmap(start + HUGE_PAGE, HUGE_PAGE - before);
    madvise(start, HUGE_PAGE, MADV_HUGEPAGE);
    spare = start + ARENA;
    return start;
}

static void *new_arena(void *Py_UNUSED(context), size_t size) {
    if (size != ARENA) { /* Python also takes the frames of its threads from here, in smaller chunks. */
        return map(size);
    }
    char *arena = spare;
    if (arena != NULL) {
        spare = NULL;
    } else if (arenas >= FEW) {
        arena = map_pair();
    }
    if (arena == NULL) {
        arena = map(size);
    }
    arenas += arena != NULL;
    return arena;
}

static void free_arena(void *Py_UNUSED(context), void *arena, size_t size) {
    munmap(arena, size); /* those that Python had mapped before, too: it does the same */
    if (size == ARENA && arenas > 0) {
        arenas--;
    }
}

static PyObject *use_huge_pages(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) {
    PyObjectArenaAllocator allocator = {NULL, new_arena, free_arena};
    PyObject_SetArenaAllocator(&allocator);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"use_huge_pages", use_huge_pages, METH_NOARGS, "Ask the kernel for huge pages for the objects of a large process."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_arenas", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__arenas(void) {
    return PyModule_Create(&module);
}
