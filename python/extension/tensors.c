/* Tuples (address, shape, type, device) become tensors of hvd, and the other way round. */
#include <stdint.h>

#include "extension.h"

static int read_number(PyObject* tuple, Py_ssize_t index, int64_t* into) {
  *into = PyLong_AsLongLong(PyTuple_GetItem(tuple, index));
  return *into == -1 && PyErr_Occurred() ? -1 : 0;
}

static int read_into(PyObject* from, hvd_tensor* tensor, int64_t* dimensions) {
  if (!PyTuple_Check(from) || PyTuple_Size(from) != 4) {
    PyErr_SetString(PyExc_TypeError, "a tensor is a tuple (address, shape, type, device)");
    return -1;
  }
  PyObject* const shape = PyTuple_GetItem(from, 1);
  if (!PyTuple_Check(shape) || PyTuple_Size(shape) > kMaxDimensions) {
    PyErr_Format(PyExc_ValueError, "a shape is a tuple of at most %d numbers", kMaxDimensions);
    return -1;
  }
  void* const data = PyLong_AsVoidPtr(PyTuple_GetItem(from, 0));
  int64_t type = 0;
  int64_t device = 0;
  if ((data == NULL && PyErr_Occurred()) || read_number(from, 2, &type) != 0 ||
      read_number(from, 3, &device) != 0) {
    return -1;
  }
  const Py_ssize_t count = PyTuple_Size(shape);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (read_number(shape, i, &dimensions[i]) != 0) return -1;
  }
  const hvd_tensor read =
      HVD_TENSOR_OF(data, dimensions, (int32_t)count, (int32_t)type, (int32_t)device);
  *tensor = read;
  return 0;
}

int read_tensor(PyObject* from, shaped_tensor* into) {
  return read_into(from, &into->tensor, into->shape);
}

hvd_tensor* read_tensors(PyObject* list, Py_ssize_t* count) {
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "a group is a list of tensors");
    return NULL;
  }
  *count = PyList_Size(list);
  const size_t each = sizeof(hvd_tensor) + kMaxDimensions * sizeof(int64_t);
  hvd_tensor* const tensors = PyMem_Calloc((size_t)*count + 1, each);
  if (tensors == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  int64_t* const shapes = (int64_t*)(tensors + *count);
  for (Py_ssize_t i = 0; i < *count; ++i) {
    if (read_into(PyList_GetItem(list, i), &tensors[i], shapes + i * kMaxDimensions) != 0) {
      PyMem_Free(tensors);
      return NULL;
    }
  }
  return tensors;
}

PyObject* tensor_tuple(const hvd_tensor* tensor) {
  PyObject* const shape = PyTuple_New(tensor->dimensions);
  if (shape == NULL) return NULL;
  for (int32_t i = 0; i < tensor->dimensions; ++i) {
    PyObject* const size = PyLong_FromLongLong(tensor->shape[i]);
    if (size == NULL || PyTuple_SetItem(shape, i, size) != 0) {
      Py_DECREF(shape);
      return NULL;
    }
  }
  return Py_BuildValue("(KNii)", (unsigned long long)(uintptr_t)tensor->data, shape, tensor->type,
                       tensor->device);
}
