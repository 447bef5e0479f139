/* Codes of hvd become exceptions, whose classes hvd.errors names. */
#include <stdlib.h>
#include <string.h>

#include "extension.h"

static PyObject* error_classes; /* {code: class} */

PyObject* set_errors(PyObject* module, PyObject* classes) {
  (void)module;
  if (!PyDict_Check(classes)) {
    PyErr_SetString(PyExc_TypeError, "set_errors() takes a dict");
    return NULL;
  }
  PyObject* const before = error_classes;
  error_classes = Py_NewRef(classes);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static char* copy_of(const char* text) {
  const size_t size = strlen(text) + 1;
  char* const copy = malloc(size);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

failure_text* take_failure(int64_t code) {
  failure_text* const taken = calloc(1, sizeof(failure_text));
  if (taken == NULL) return NULL;
  taken->code = code;
  taken->rank = hvd_last_error_rank();
  taken->text = copy_of(hvd_last_error());
  taken->host = copy_of(hvd_last_error_host());
  taken->cause = copy_of(hvd_last_error_cause());
  return taken;
}

void free_failure(failure_text* taken) {
  if (taken == NULL) return;
  free(taken->text);
  free(taken->host);
  free(taken->cause);
  free(taken);
}

/* An attribute; 0, or -1 with an exception. */
static int set_text(PyObject* object, const char* name, const char* text) {
  PyObject* const value = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  if (value == NULL) return -1;
  const int result = PyObject_SetAttrString(object, name, value);
  Py_DECREF(value);
  return result;
}

static int set_number(PyObject* object, const char* name, int64_t number) {
  PyObject* const value = PyLong_FromLongLong(number);
  if (value == NULL) return -1;
  const int result = PyObject_SetAttrString(object, name, value);
  Py_DECREF(value);
  return result;
}

PyObject* raise_failure(const failure_text* taken, int64_t code) {
  const char* const known = taken != NULL && taken->text != NULL ? taken->text : "";
  const char* const text = known[0] != '\0' ? known : hvd_code_text((int)code);
  PyObject* class = NULL;
  if (error_classes != NULL) {
    PyObject* const key = PyLong_FromLongLong(code);
    if (key == NULL) return NULL;
    class = PyDict_GetItemWithError(error_classes, key);
    Py_DECREF(key);
  }
  if (class == NULL) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, text);
    return NULL;
  }

  PyObject* const message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  if (message == NULL) return NULL;
  PyObject* const error = PyObject_CallFunctionObjArgs(class, message, NULL);
  Py_DECREF(message);
  if (error == NULL) return NULL;
  if (set_number(error, "code", code) == 0 &&
      set_number(error, "rank", taken == NULL ? -1 : taken->rank) == 0 &&
      set_text(error, "host", taken == NULL || taken->host == NULL ? "" : taken->host) == 0 &&
      set_text(error, "cause", taken == NULL || taken->cause == NULL ? "" : taken->cause) == 0) {
    PyErr_SetObject(class, error);
  }
  Py_DECREF(error);
  return NULL;
}

PyObject* raise_code(int64_t code) {
  failure_text* const taken = take_failure(code);
  raise_failure(taken, code);
  free_failure(taken);
  return NULL;
}

PyObject* none_or_raise(int64_t code) {
  if (code < 0) return raise_code(code);
  Py_RETURN_NONE;
}
