/* The types Reducer, the heart of a distributed optimizer, and ShardReducer. */
#include <stdlib.h>

#include "extension.h"

typedef struct reducer {
  PyObject ob_base;
  hvd_reducer handle;
  PyObject* kept; /* by their indices the tensors that hvd may read and write */
} reducer;

static hvd_reducer handle_of(PyObject* self) { return ((reducer*)self)->handle; }

static const abandoned_kind kAbandonedReducer = {hvd_reducer_in_flight, hvd_reducer_release};

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
  if (!PyArg_ParseTuple(arguments, "siidiiiiOi", &options.name, &options.op, &options.compression,
                        &options.gradient_predivide_factor, &options.process_set,
                        &options.backward_passes_per_step, &options.sparse_as_dense,
                        &options.number_of_groups, &list, &options.shards)) {
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
  made->kept = PyDict_New();
  if (made->kept == NULL) {
    Py_DECREF(made);
    return NULL;
  }
  sweep_abandoned();
  return (PyObject*)made;
}

static void reducer_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  reducer* const own = (reducer*)self;
  if (own->kept != NULL && hvd_reducer_in_flight(own->handle) == 1) {
    abandon(own->handle, &kAbandonedReducer, own->kept);
  } else {
    hvd_reducer_release(own->handle);
    Py_XDECREF(own->kept);
  }
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
  PyObject* index = NULL;
  PyObject* tuple = NULL;
  PyObject* keep = NULL;
  long long stream = -1;
  shaped_tensor gradient;
  if (!PyArg_ParseTuple(arguments, "OOOL", &index, &tuple, &keep, &stream)) return NULL;
  const Py_ssize_t number = PyLong_AsSsize_t(index);
  if (PyErr_Occurred() || read_tensor(tuple, &gradient) != 0) return NULL;
  /* One that is refused leaves the one before in flight. */
  PyObject* const kept = ((reducer*)self)->kept;
  PyObject* const before = PyDict_GetItemWithError(kept, index);
  if (before == NULL && PyErr_Occurred()) return NULL;
  Py_XINCREF(before);
  if (PyDict_SetItem(kept, index, keep) != 0) {
    Py_XDECREF(before);
    return NULL;
  }
  hvd_ready_event event = HVD_READY_EVENT_INIT;
  int code = stream < 0 ? HVD_OK : hvd_cuda_ready_after((hvd_cuda_stream)(uintptr_t)stream, &event);
  if (code == HVD_OK) {
    code = hvd_reducer_ready_at(handle_of(self), (size_t)number, &gradient.tensor,
                                stream < 0 ? NULL : &event);
  }
  if (code != HVD_OK) {
    raise_code(code);
    if (before != NULL) PyDict_SetItem(kept, index, before);
  }
  Py_XDECREF(before);
  return code == HVD_OK ? Py_NewRef(Py_None) : NULL;
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

static PyObject* missing(PyObject* self, PyObject* timeout) {
  const int64_t timeout_ms = PyLong_AsLongLong(timeout);
  const int64_t size = hvd_reducer_size(handle_of(self));
  if (PyErr_Occurred()) return NULL;
  if (size < 0) return raise_code(size);
  size_t* const indices = PyMem_Calloc((size_t)size + 1, sizeof(size_t));
  if (indices == NULL) return PyErr_NoMemory();
  size_t count = 0;
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code =
      hvd_reducer_missing_for(handle_of(self), timeout_ms, indices, (size_t)size, &count);
  Py_END_ALLOW_THREADS PyObject* list = NULL;
  if (code == HVD_ERROR_NOT_READY) {
    list = Py_NewRef(Py_None);
  } else if (code != HVD_OK) {
    raise_code(code);
  } else {
    list = PyList_New((Py_ssize_t)count);
  }
  for (size_t i = 0; list != NULL && i < count; ++i) {
    PyObject* const index = PyLong_FromSize_t(indices[i]);
    if (index == NULL || PyList_SetItem(list, (Py_ssize_t)i, index) != 0) Py_CLEAR(list);
  }
  PyMem_Free(indices);
  return list;
}

static PyObject* synchronize(PyObject* self, PyObject* timeout) {
  const int64_t timeout_ms = PyLong_AsLongLong(timeout);
  if (PyErr_Occurred()) return NULL;
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code = hvd_reducer_synchronize_for(handle_of(self), timeout_ms);
  Py_END_ALLOW_THREADS if (code == HVD_ERROR_NOT_READY) Py_RETURN_FALSE;
  if (code != HVD_OK) return raise_code(code);
  PyDict_Clear(((reducer*)self)->kept);
  Py_RETURN_TRUE;
}

static PyObject* synchronized(PyObject* self, PyObject* none) {
  (void)none;
  const int code = hvd_reducer_synchronized(handle_of(self));
  return code < 0 ? raise_code(code) : PyBool_FromLong(code);
}

static PyObject* present(PyObject* self, PyObject* index) {
  const Py_ssize_t number = PyLong_AsSsize_t(index);
  if (PyErr_Occurred()) return NULL;
  const int code = hvd_reducer_present(handle_of(self), (size_t)number);
  return code < 0 ? raise_code(code) : PyBool_FromLong(code);
}

static PyObject* in_flight(PyObject* self, PyObject* none) {
  (void)none;
  const int code = hvd_reducer_in_flight(handle_of(self));
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

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "add(name, tensor, sparse): its index."},
    {"ready", ready, METH_VARARGS,
     "ready(index, tensor, keep, stream): one more backward pass; -1 is no stream. `keep` owns "
     "the\n"
     "memory, and lives until hvd does not use it any more."},
    {"ready_sparse", ready_sparse, METH_VARARGS, "ready_sparse(index, indices, values)"},
    {"missing", missing, METH_O,
     "missing(timeout_ms): what other ranks have and this one lacks. None: not all are there."},
    {"synchronize", synchronize, METH_O, "synchronize(timeout_ms): whether all is reduced."},
    {"synchronized", synchronized, METH_NOARGS, "Whether this step is."},
    {"present", present, METH_O, "present(index): whether a rank had this gradient."},
    {"in_flight", in_flight, METH_NOARGS, "Whether hvd uses memory of a gradient."},
    {"reduced", reduced, METH_O, "reduced(index): indices and values of all ranks."},
    {"next_step", next_step, METH_NOARGS, "Begins the next step."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reducer_new},
    {Py_tp_dealloc, reducer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Reducer(name, op, compression, gradient_predivide_factor, process_set,\n"
     "backward_passes_per_step, sparse_as_dense, number_of_groups, groups, shards)"},
    {0, NULL},
};

static PyType_Spec spec = {"hvd._core.Reducer", sizeof(reducer), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

/* --- the type ShardReducer --- */

/* Memory of gradients is used within the calls that name it, and never between them. */
typedef struct shard_reducer {
  PyObject ob_base;
  hvd_shard_reducer handle;
  Py_ssize_t size; /* gradients */
} shard_reducer;

static hvd_shard_reducer shards_handle_of(PyObject* self) { return ((shard_reducer*)self)->handle; }

/* What is in flight is memory of the reducer's own. */
static const abandoned_kind kAbandonedShards = {hvd_shard_reducer_in_flight,
                                                hvd_shard_reducer_release};

static PyObject* shards_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  (void)keywords;
  hvd_shard_reducer_options options = HVD_SHARD_REDUCER_OPTIONS_INIT;
  if (!PyArg_ParseTuple(arguments, "siii", &options.name, &options.shards, &options.op,
                        &options.process_set)) {
    return NULL;
  }
  hvd_shard_reducer handle = 0;
  const int code = hvd_shard_reducer_create(&options, &handle);
  if (code != HVD_OK) return raise_code(code);
  shard_reducer* const made = (shard_reducer*)PyType_GenericAlloc(type, 0);
  if (made == NULL) {
    hvd_shard_reducer_release(handle);
    return NULL;
  }
  made->handle = handle;
  sweep_abandoned();
  return (PyObject*)made;
}

static void shards_dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  const hvd_shard_reducer handle = shards_handle_of(self);
  if (hvd_shard_reducer_in_flight(handle) == 1) {
    abandon(handle, &kAbandonedShards, Py_NewRef(Py_None));
  } else {
    hvd_shard_reducer_release(handle);
  }
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject* shards_add(PyObject* self, PyObject* arguments) {
  const char* name = NULL;
  PyObject* tuple = NULL;
  shaped_tensor gradient;
  if (!PyArg_ParseTuple(arguments, "sO", &name, &tuple)) return NULL;
  if (read_tensor(tuple, &gradient) != 0) return NULL;
  const int code = hvd_shard_reducer_add(shards_handle_of(self), name, &gradient.tensor);
  if (code == HVD_OK) ++((shard_reducer*)self)->size;
  return none_or_raise(code);
}

static PyObject* shards_own(PyObject* self, PyObject* none) {
  (void)none;
  int32_t first = 0;
  int32_t last = 0;
  const int code = hvd_shard_reducer_own(shards_handle_of(self), &first, &last);
  return code != HVD_OK ? raise_code(code) : Py_BuildValue("(ii)", first, last);
}

/* The gradients lie at these addresses. 0, or -1 with an exception. */
static int rebind_all(PyObject* self, PyObject* addresses) {
  const Py_ssize_t size = PyList_Size(addresses);
  if (size < 0) return -1;
  if (size != ((shard_reducer*)self)->size) {
    PyErr_SetString(PyExc_ValueError, "each gradient has one address");
    return -1;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    void* const data = PyLong_AsVoidPtr(PyList_GetItem(addresses, i));
    if (data == NULL && PyErr_Occurred()) return -1;
    const int code = hvd_shard_reducer_rebind(shards_handle_of(self), (size_t)i, data);
    if (code != HVD_OK) {
      raise_code(code);
      return -1;
    }
  }
  return 0;
}

static PyObject* shards_begin(PyObject* self, PyObject* arguments) {
  unsigned long long step = 0;
  int capacity = 0; /* at least as many as there are shards */
  if (!PyArg_ParseTuple(arguments, "Ki", &step, &capacity)) return NULL;
  int32_t* const shards = PyMem_Malloc((size_t)capacity * sizeof(int32_t) + 1);
  if (shards == NULL) return PyErr_NoMemory();
  size_t count = 0;
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code =
      hvd_shard_reducer_begin(shards_handle_of(self), step, shards, (size_t)capacity, &count);
  Py_END_ALLOW_THREADS PyObject* list = code == HVD_OK ? PyList_New((Py_ssize_t)count) : NULL;
  for (size_t i = 0; list != NULL && i < count; ++i) {
    PyObject* const shard = PyLong_FromLong(shards[i]);
    if (shard == NULL || PyList_SetItem(list, (Py_ssize_t)i, shard) != 0) Py_CLEAR(list);
  }
  PyMem_Free(shards);
  return code != HVD_OK ? raise_code(code) : list;
}

static PyObject* shards_ready(PyObject* self, PyObject* arguments) {
  int shard = 0;
  PyObject* addresses = NULL;
  PyObject* numbers = NULL;
  if (!PyArg_ParseTuple(arguments, "iOO", &shard, &addresses, &numbers)) return NULL;
  if (rebind_all(self, addresses) != 0) return NULL;
  const Py_ssize_t count = PyList_Size(numbers);
  if (count < 0) return NULL;
  int64_t* const samples = PyMem_Malloc((size_t)count * sizeof(int64_t) + 1);
  if (samples == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    samples[i] = PyLong_AsLongLong(PyList_GetItem(numbers, i));
    if (samples[i] == -1 && PyErr_Occurred()) {
      PyMem_Free(samples);
      return NULL;
    }
  }
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code =
      hvd_shard_reducer_ready_of(shards_handle_of(self), shard, samples, (size_t)count);
  Py_END_ALLOW_THREADS PyMem_Free(samples);
  return none_or_raise(code);
}

static PyObject* shards_synchronize(PyObject* self, PyObject* arguments) {
  long long timeout_ms = 0;
  PyObject* addresses = NULL;
  if (!PyArg_ParseTuple(arguments, "LO", &timeout_ms, &addresses)) return NULL;
  if (rebind_all(self, addresses) != 0) return NULL;
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code =
      hvd_shard_reducer_synchronize_for(shards_handle_of(self), timeout_ms);
  Py_END_ALLOW_THREADS if (code == HVD_ERROR_NOT_READY) Py_RETURN_FALSE;
  if (code != HVD_OK) return raise_code(code);
  Py_RETURN_TRUE;
}

static PyObject* shards_in_flight(PyObject* self, PyObject* none) {
  (void)none;
  const int code = hvd_shard_reducer_in_flight(shards_handle_of(self));
  return code < 0 ? raise_code(code) : PyBool_FromLong(code);
}

static PyObject* shards_reset(PyObject* self, PyObject* none) {
  (void)none;
  int code = HVD_OK;
  Py_BEGIN_ALLOW_THREADS code = hvd_shard_reducer_reset(shards_handle_of(self));
  Py_END_ALLOW_THREADS return none_or_raise(code);
}

static PyMethodDef shards_methods[] = {
    {"add", shards_add, METH_VARARGS, "add(name, tensor)"},
    {"own", shards_own, METH_NOARGS, "The first shard of this rank, and one behind the last."},
    {"begin", shards_begin, METH_VARARGS,
     "begin(step, shards): the shards that this rank is to compute."},
    {"ready", shards_ready, METH_VARARGS,
     "ready(shard, addresses, samples): the gradients of a shard lie there."},
    {"synchronize", shards_synchronize, METH_VARARGS,
     "synchronize(timeout_ms, addresses): whether the gradients of all shards lie there."},
    {"in_flight", shards_in_flight, METH_NOARGS, "Whether synchronize() has to be called again."},
    {"reset", shards_reset, METH_NOARGS, "Forgets the step."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shards_slots[] = {
    {Py_tp_new, shards_new},
    {Py_tp_dealloc, shards_dealloc},
    {Py_tp_methods, shards_methods},
    {Py_tp_doc, "ShardReducer(name, shards, op, process_set)"},
    {0, NULL},
};

static PyType_Spec shards_spec = {"hvd._core.ShardReducer", sizeof(shard_reducer), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, shards_slots};

int add_reducer(PyObject* module) {
  return add_type(module, &spec) != 0 ? -1 : add_type(module, &shards_spec);
}
