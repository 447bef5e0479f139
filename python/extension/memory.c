/* The type Memory: bytes that the ranks of a host share, for as long as the object lives. */
#include <stddef.h>
#include <stdint.h>

#include "extension.h"

typedef struct memory {
  PyObject ob_base;
  void* bytes;
} memory;

static PyObject* memory_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  Py_ssize_t bytes = 0;
  static char* names[] = {"bytes", NULL};
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n", names, &bytes)) return NULL;
  if (bytes < 0) {
    PyErr_SetString(PyExc_ValueError, "memory cannot have less than no bytes");
    return NULL;
  }
  memory* const self = (memory*)PyType_GenericAlloc(type, 0);
  if (self == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS self->bytes = hvd_alloc((size_t)bytes);
  Py_END_ALLOW_THREADS if (self->bytes == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return (PyObject*)self;
}

/* Giving gigabytes back takes the kernel long: other threads run meanwhile. */
static void memory_dealloc(PyObject* object) {
  void* const bytes = ((memory*)object)->bytes;
  Py_BEGIN_ALLOW_THREADS hvd_free(bytes);
  Py_END_ALLOW_THREADS PyTypeObject* const type = Py_TYPE(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject* memory_address(PyObject* object, void* closure) {
  (void)closure;
  return PyLong_FromVoidPtr(((memory*)object)->bytes);
}

static PyGetSetDef attributes[] = {
    {"address", memory_address, NULL, "Where the bytes begin.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_getset, attributes},
    {Py_tp_doc, "Memory(bytes): zeros that the ranks of a host share."},
    {0, NULL},
};

static PyType_Spec spec = {"hvd._core.Memory", sizeof(memory), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

int add_memory(PyObject* module) { return add_type(module, &spec); }
