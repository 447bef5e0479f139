/* The type Reducer: the heart of a distributed optimizer. */
#include <stdlib.h>

#include "extension.h"

typedef struct reducer {
  PyObject ob_base;
  hvd_reducer handle;
} reducer;

static hvd_reducer handle_of(PyObject* self) { return ((reducer*)self)->handle; }

/* Frees what read_groups() has made. */
static void free_groups(const char*** groups, size_t* sizes, size_t count) {
  for (size_t i = 0; groups != NULL && i < count; ++i) PyMem_Free((void*)groups[i]);
  PyMem_Free((void*)groups);
  PyMem_Free(sizes);
}

/* A list of lists of names, whose characters belong to Python's strings. */
static int read_groups(PyObject* list, const char**** groups, size_t** sizes, size_t* count) {
  const Py_ssize_t total = PyList_Size(list);
  if (total < 0) return -1;
  *groups = PyMem_Calloc((size_t)total + 1, sizeof(char**));
  *sizes = PyMem_Calloc((size_t)total + 1, sizeof(size_t));
  if (*groups == NULL || *sizes == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < total; ++i) {
    PyObject* const names = PyList_GetItem(list, i);
    const Py_ssize_t size = PyList_Size(names);
    if (size < 0) return -1;
    const char** const group = PyMem_Calloc((size_t)size + 1, sizeof(char*));
    if (group == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    (*groups)[i] = group;
    *count = (size_t)i + 1;
    for (Py_ssize_t j = 0; j < size; ++j) {
      group[j] = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, j), NULL);
      if (group[j] == NULL) return -1;
    }
    (*sizes)[i] = (size_t)size;
  }
  return 0;
}

static PyObject* reducer_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  (void)keywords;
  hvd_reducer_options options = HVD_REDUCER_OPTIONS_INIT;
  PyObject* list = NULL;
  if (!PyArg_ParseTuple(arguments, "siidiiiiO", &options.name, &options.op, &options.compression,
                        &options.gradient_predivide_factor, &options.process_set,
                        &options.backward_passes_per_step, &options.sparse_as_dense,
                        &options.number_of_groups, &list)) {
    return NULL;
  }
  const char*** groups = NULL;
  size_t* sizes = NULL;
  hvd_reducer handle = 0;
  int code = 1;
  if (read_groups(list, &groups, &sizes, &options.group_count) == 0) {
    options.groups = (const char* const* const*)groups;
    options.group_sizes = sizes;
    code = hvd_reducer_create(&options, &handle);
  }
  free_groups(groups, sizes, options.group_count);
  if (code == 1) return NULL;
  if (code != HVD_OK) return raise_code(code);
  reducer* const made = (reducer*)PyType_GenericAlloc(type, 0);
  if (made == NULL) {
    hvd_reducer_release(handle);
    return NULL;
  }
  made->handle = handle;
  return (PyObject*)made;
}

static void reducer_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  hvd_reducer_release(handle_of(self));
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject* add(PyObject* self, PyObject* arguments) {
  const char* name = NULL;
  PyObject* tuple = NULL;
  int sparse = 0;
  shaped_tensor gradient;
  if (!PyArg_ParseTuple(arguments, "sOp", &name, &tuple, &sparse)) return NULL;
  if (read_tensor(tuple, &gradient) != 0) return NULL;
  const int64_t index = sparse ? hvd_reducer_add_sparse(handle_of(self), name, &gradient.tensor)
                               : hvd_reducer_add(handle_of(self), name, &gradient.tensor);
  return index < 0 ? raise_code(index) : PyLong_FromLongLong(index);
}

static PyObject* ready(PyObject* self, PyObject* arguments) {
  Py_ssize_t index = 0;
  long long stream = -1;
  if (!PyArg_ParseTuple(arguments, "nL", &index, &stream)) return NULL;
  if (stream < 0) return none_or_raise(hvd_reducer_ready(handle_of(self), (size_t)index, NULL));
  hvd_ready_event event = HVD_READY_EVENT_INIT;
  const int code = hvd_cuda_ready_after((hvd_cuda_stream)(uintptr_t)stream, &event);
  if (code != HVD_OK) return raise_code(code);
  return none_or_raise(hvd_reducer_ready(handle_of(self), (size_t)index, &event));
}

static PyObject* ready_sparse(PyObject* self, PyObject* arguments) {
  Py_ssize_t index = 0;
  PyObject* first = NULL;
  PyObject* second = NULL;
  shaped_tensor indices;
  shaped_tensor values;
  if (!PyArg_ParseTuple(arguments, "nOO", &index, &first, &second)) return NULL;
  if (read_tensor(first, &indices) != 0 || read_tensor(second, &values) != 0) return NULL;
  return none_or_raise(
      hvd_reducer_ready_sparse(handle_of(self), (size_t)index, &indices.tensor, &values.tensor));
}

static int64_t call_synchronize(void* data) {
  return hvd_reducer_synchronize((hvd_reducer)(intptr_t)data);
}

static int64_t call_reset(void* data) { return hvd_reducer_reset((hvd_reducer)(intptr_t)data); }

static PyObject* blocked(PyObject* self, blocking_call call) {
  int64_t result = 0;
  if (run_blocking(call, (void*)(intptr_t)handle_of(self), &result) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* synchronize(PyObject* self, PyObject* none) {
  (void)none;
  return blocked(self, call_synchronize);
}

static PyObject* reset(PyObject* self, PyObject* none) {
  (void)none;
  return blocked(self, call_reset);
}

static PyObject* synchronized(PyObject* self, PyObject* none) {
  (void)none;
  const int code = hvd_reducer_synchronized(handle_of(self));
  return code < 0 ? raise_code(code) : PyBool_FromLong(code);
}

static PyObject* reduced(PyObject* self, PyObject* argument) {
  const Py_ssize_t index = PyLong_AsSsize_t(argument);
  if (PyErr_Occurred()) return NULL;
  hvd_tensor indices = HVD_TENSOR_INIT;
  hvd_tensor values = HVD_TENSOR_INIT;
  const int code = hvd_reducer_reduced(handle_of(self), (size_t)index, &indices, &values);
  if (code != HVD_OK) return raise_code(code);
  PyObject* const first = tensor_tuple(&indices);
  PyObject* const second = first == NULL ? NULL : tensor_tuple(&values);
  if (second == NULL) {
    Py_XDECREF(first);
    return NULL;
  }
  return Py_BuildValue("(NN)", first, second);
}

static PyObject* next_step(PyObject* self, PyObject* none) {
  (void)none;
  return none_or_raise(hvd_reducer_next_step(handle_of(self)));
}

static PyObject* rebind(PyObject* self, PyObject* arguments) {
  Py_ssize_t index = 0;
  unsigned long long address = 0;
  if (!PyArg_ParseTuple(arguments, "nK", &index, &address)) return NULL;
  return none_or_raise(
      hvd_reducer_rebind(handle_of(self), (size_t)index, (void*)(uintptr_t)address));
}

static PyObject* set_passes(PyObject* self, PyObject* argument) {
  const long passes = PyLong_AsLong(argument);
  if (PyErr_Occurred()) return NULL;
  const int32_t number = passes == (int32_t)passes ? (int32_t)passes : -1;
  return none_or_raise(hvd_reducer_set_backward_passes_per_step(handle_of(self), number));
}

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "add(name, tensor, sparse): its index."},
    {"ready", ready, METH_VARARGS,
     "ready(index, stream): one more backward pass; -1 is no stream."},
    {"ready_sparse", ready_sparse, METH_VARARGS, "ready_sparse(index, indices, values)"},
    {"synchronize", synchronize, METH_NOARGS, "Blocks until all is reduced."},
    {"synchronized", synchronized, METH_NOARGS, "Whether this step is."},
    {"reduced", reduced, METH_O, "reduced(index): indices and values of all ranks."},
    {"next_step", next_step, METH_NOARGS, "Begins the next step."},
    {"rebind", rebind, METH_VARARGS, "rebind(index, address): the gradient has moved."},
    {"set_backward_passes_per_step", set_passes, METH_O, "Between steps."},
    {"reset", reset, METH_NOARGS, "Forgets the step."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reducer_new},
    {Py_tp_dealloc, reducer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Reducer(name, op, compression, gradient_predivide_factor, process_set,\n"
     "backward_passes_per_step, sparse_as_dense, number_of_groups, groups)"},
    {0, NULL},
};

static PyType_Spec spec = {"hvd._core.Reducer", sizeof(reducer), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

int add_reducer(PyObject* module) { return add_type(module, &spec); }
