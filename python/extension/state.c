/* The type State: what survives in an elastic job, and the turns of its run.
 *
 * Tensors are added by their address, with the object that owns the memory there: the state keeps
 * it. All else is one string of bytes, which Python packs before a call and unpacks after it: hvd
 * saves and loads it on any thread without touching Python. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

typedef struct segment {
  const void* bytes;
  size_t size;
} segment;

/* Plain memory, since hvd may use it while no thread has the GIL. */
typedef struct blob {
  pthread_mutex_t mutex;
  segment* segments; /* what is saved, one after the other */
  size_t count;
  char* head; /* the first segment's bytes */
  char* loaded;
  size_t loaded_size;
  int is_loaded;
  int leaves; /* this worker, at the newest commit */
} blob;

typedef struct state {
  PyObject ob_base;
  hvd_state handle;
  blob* blob;       /* owned by the handle once it is added */
  PyObject* keep;   /* what the segments belong to */
  PyObject* owners; /* a list of what the tensors belong to */
  int is_busy;      /* a call is under way; for ever, if a signal has cut off the wait for it */
} state;

/* --- the handler --- */

static int blob_bytes(void* data, size_t* bytes) {
  blob* const own = data;
  pthread_mutex_lock(&own->mutex);
  *bytes = 0;
  for (size_t i = 0; i < own->count; ++i) *bytes += own->segments[i].size;
  pthread_mutex_unlock(&own->mutex);
  return HVD_OK;
}

static int blob_save(void* data, void* into, size_t bytes) {
  blob* const own = data;
  char* next = into;
  int code = HVD_OK;
  pthread_mutex_lock(&own->mutex);
  for (size_t i = 0; i < own->count && code == HVD_OK; ++i) {
    if (own->segments[i].size > bytes) {
      code = HVD_ERROR_INTERNAL;
    } else if (own->segments[i].size > 0) {
      memcpy(next, own->segments[i].bytes, own->segments[i].size);
      next += own->segments[i].size;
      bytes -= own->segments[i].size;
    }
  }
  pthread_mutex_unlock(&own->mutex);
  return code;
}

static int blob_load(void* data, const void* from, size_t bytes) {
  blob* const own = data;
  char* const copy = malloc(bytes + 1);
  if (copy == NULL) return HVD_ERROR_OUT_OF_MEMORY;
  memcpy(copy, from, bytes);
  pthread_mutex_lock(&own->mutex);
  free(own->loaded);
  own->loaded = copy;
  own->loaded_size = bytes;
  own->is_loaded = 1;
  pthread_mutex_unlock(&own->mutex);
  return HVD_OK;
}

static int blob_leaves(void* data) {
  blob* const own = data;
  pthread_mutex_lock(&own->mutex);
  own->leaves = 1;
  pthread_mutex_unlock(&own->mutex);
  return HVD_OK;
}

static void blob_release(void* data) {
  blob* const own = data;
  pthread_mutex_destroy(&own->mutex);
  free(own->segments);
  free(own->head);
  free(own->loaded);
  free(own);
}

/* --- making one --- */

static PyObject* state_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  (void)keywords;
  hvd_state_options options = HVD_STATE_OPTIONS_INIT;
  if (!PyArg_ParseTuple(arguments, "i", &options.compare_every)) return NULL;
  state* const own = (state*)PyType_GenericAlloc(type, 0);
  if (own == NULL) return NULL;
  own->owners = PyList_New(0);
  if (own->owners == NULL) {
    Py_DECREF(own);
    return NULL;
  }
  const int code = hvd_state_create(&options, &own->handle);
  if (code != HVD_OK) {
    Py_DECREF(own);
    return raise_code(code);
  }
  return (PyObject*)own;
}

static void state_dealloc(PyObject* self) {
  state* const own = (state*)self;
  PyTypeObject* const type = Py_TYPE(self);
  hvd_state_release(own->handle);
  Py_XDECREF(own->keep);
  Py_XDECREF(own->owners);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject* add_tensor(PyObject* self, PyObject* arguments) {
  const char* name = NULL;
  PyObject* tuple = NULL;
  PyObject* owner = NULL;
  shaped_tensor added;
  if (!PyArg_ParseTuple(arguments, "sOO", &name, &tuple, &owner)) return NULL;
  if (read_tensor(tuple, &added) != 0) return NULL;
  if (PyList_Append(((state*)self)->owners, owner) != 0) return NULL;
  return none_or_raise(hvd_state_add_tensor(((state*)self)->handle, name, &added.tensor));
}

static PyObject* add_bytes(PyObject* self, PyObject* name_object) {
  state* const own = (state*)self;
  const char* const name = PyUnicode_AsUTF8AndSize(name_object, NULL);
  if (name == NULL) return NULL;
  blob* const made = calloc(1, sizeof(blob));
  if (made == NULL) return PyErr_NoMemory();
  pthread_mutex_init(&made->mutex, NULL);
  hvd_state_handler handler = HVD_STATE_HANDLER_INIT;
  handler.bytes = blob_bytes;
  handler.save = blob_save;
  handler.load = blob_load;
  handler.release = blob_release;
  handler.data = made;
  const int code = hvd_state_add_handler(own->handle, name, &handler);
  if (code != HVD_OK) return raise_code(code);
  own->blob = made;
  return none_or_raise(hvd_state_on_notice(own->handle, blob_leaves, made));
}

/* hvd_state is for one thread at a time, and a call that a signal has cut off goes on. */
static int needs_no_call(const state* own) {
  if (!own->is_busy) return 0;
  PyErr_SetString(PyExc_RuntimeError,
                  "another call of this state is under way, or was interrupted by a signal, after "
                  "which the state cannot be used any more");
  return -1;
}

static int needs_blob(const state* own) {
  if (own->blob != NULL) return needs_no_call(own);
  PyErr_SetString(PyExc_RuntimeError, "add_bytes() comes first");
  return -1;
}

/* The segments of a list of (address, size), after one for `size` bytes of a head of their own. */
static segment* read_segments(PyObject* list, size_t size, size_t* count) {
  const Py_ssize_t given = PyList_Size(list);
  if (given < 0) return NULL;
  segment* const segments = calloc((size_t)given + 1, sizeof(segment));
  if (segments == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  segments[0].size = size;
  for (Py_ssize_t i = 0; i < given; ++i) {
    unsigned long long address = 0;
    Py_ssize_t bytes = 0;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "Kn", &address, &bytes)) {
      free(segments);
      return NULL;
    }
    segments[i + 1].bytes = (const void*)(uintptr_t)address;
    segments[i + 1].size = (size_t)bytes;
  }
  *count = (size_t)given + 1;
  return segments;
}

static PyObject* set_bytes(PyObject* self, PyObject* arguments) {
  state* const own = (state*)self;
  const char* head = NULL;
  Py_ssize_t size = 0;
  PyObject* list = NULL;
  PyObject* keep = NULL;
  if (!PyArg_ParseTuple(arguments, "y#OO", &head, &size, &list, &keep)) return NULL;
  if (needs_blob(own) != 0) return NULL;
  size_t count = 0;
  segment* const segments = read_segments(list, (size_t)size, &count);
  if (segments == NULL) return NULL;
  char* const copy = malloc((size_t)size + 1);
  if (copy == NULL) {
    free(segments);
    return PyErr_NoMemory();
  }
  memcpy(copy, head, (size_t)size);
  segments[0].bytes = copy;

  blob* const bytes = own->blob;
  pthread_mutex_lock(&bytes->mutex);
  segment* const old_segments = bytes->segments;
  char* const old_head = bytes->head;
  bytes->segments = segments;
  bytes->count = count;
  bytes->head = copy;
  pthread_mutex_unlock(&bytes->mutex);
  free(old_segments);
  free(old_head);
  PyObject* const before = own->keep;
  own->keep = Py_NewRef(keep);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static PyObject* take_loaded(PyObject* self, PyObject* none) {
  (void)none;
  state* const own = (state*)self;
  if (needs_blob(own) != 0) return NULL;
  pthread_mutex_lock(&own->blob->mutex);
  char* const bytes = own->blob->loaded;
  const size_t size = own->blob->loaded_size;
  const int is_loaded = own->blob->is_loaded;
  own->blob->loaded = NULL;
  own->blob->is_loaded = 0;
  pthread_mutex_unlock(&own->blob->mutex);
  if (!is_loaded) Py_RETURN_NONE;
  PyObject* const copy = PyByteArray_FromStringAndSize(bytes, (Py_ssize_t)size);
  free(bytes);
  return copy;
}

static PyObject* leaves(PyObject* self, PyObject* none) {
  (void)none;
  state* const own = (state*)self;
  if (needs_blob(own) != 0) return NULL;
  pthread_mutex_lock(&own->blob->mutex);
  const int answer = own->blob->leaves;
  pthread_mutex_unlock(&own->blob->mutex);
  return PyBool_FromLong(answer);
}

/* --- what blocks --- */

typedef struct state_call {
  hvd_state handle;
  int code;
  char* reason; /* the text of the failure that the code stands for; "": there is none */
  int32_t answer;
} state_call;

static int64_t call_commit(void* data) { return hvd_state_commit(((state_call*)data)->handle); }
static int64_t call_change_due(void* data) {
  state_call* const own = data;
  return hvd_state_change_due(own->handle, &own->answer);
}
static int64_t call_restore(void* data) { return hvd_state_restore(((state_call*)data)->handle); }
static int64_t call_sync(void* data) { return hvd_state_sync(((state_call*)data)->handle); }
static int64_t call_next(void* data) {
  state_call* const own = data;
  /* Here, since hvd asks for the text of a failure on the thread that calls it. */
  if (own->reason[0] != '\0') hvd_fail(own->code, own->reason);
  return hvd_elastic_next(own->handle, own->code, &own->answer);
}

/* 0, or -1 with an exception. After a call that a signal has cut off the state stays for ever, with
 * all that it keeps. Takes `reason`. */
static int block_on(PyObject* self, blocking_call call, int code, char* reason, int32_t* answer) {
  if (needs_no_call((state*)self) != 0) {
    free(reason);
    return -1;
  }
  state_call* const own = calloc(1, sizeof(state_call));
  if (own == NULL) {
    free(reason);
    PyErr_NoMemory();
    return -1;
  }
  own->handle = ((state*)self)->handle;
  own->code = code;
  own->reason = reason;
  int64_t result = 0;
  ((state*)self)->is_busy = 1;
  Py_INCREF(self);
  const int outcome = run_blocking(call, own, &result);
  if (outcome != 0 && result >= 0) return -1;
  ((state*)self)->is_busy = 0;
  Py_DECREF(self);
  *answer = own->answer;
  free(own->reason);
  free(own);
  return outcome;
}

static PyObject* none_or_block(PyObject* self, blocking_call call) {
  int32_t ignored = 0;
  if (block_on(self, call, HVD_OK, NULL, &ignored) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* commit(PyObject* self, PyObject* none) {
  (void)none;
  return none_or_block(self, call_commit);
}
static PyObject* change_due(PyObject* self, PyObject* none) {
  (void)none;
  int32_t is_due = 0;
  if (block_on(self, call_change_due, HVD_OK, NULL, &is_due) != 0) return NULL;
  return PyBool_FromLong(is_due);
}
static PyObject* restore(PyObject* self, PyObject* none) {
  (void)none;
  return none_or_block(self, call_restore);
}
static PyObject* sync_state(PyObject* self, PyObject* none) {
  (void)none;
  return none_or_block(self, call_sync);
}

static PyObject* next_turn(PyObject* self, PyObject* arguments) {
  int code = HVD_OK;
  const char* reason = NULL;
  if (!PyArg_ParseTuple(arguments, "iy", &code, &reason)) return NULL;
  char* const copy = strdup(reason);
  if (copy == NULL) return PyErr_NoMemory();
  int32_t function_is_called = 0;
  if (block_on(self, call_next, code, copy, &function_is_called) != 0) return NULL;
  return PyBool_FromLong(function_is_called);
}

static PyMethodDef methods[] = {
    {"add_tensor", add_tensor, METH_VARARGS,
     "add_tensor(name, tensor, owner): `owner` keeps the memory, and lives as long as the state."},
    {"add_bytes", add_bytes, METH_O, "add_bytes(name): room for what set_bytes() says, once."},
    {"set_bytes", set_bytes, METH_VARARGS,
     "set_bytes(head, segments, keep): what is saved from now on: the bytes of the head, then "
     "those\n"
     "at each (address, size), which belong to `keep`."},
    {"take_loaded", take_loaded, METH_NOARGS,
     "What has been loaded since the last call, as a bytearray; None: nothing."},
    {"leaves", leaves, METH_NOARGS, "Whether this worker leaves at the newest commit."},
    {"commit", commit, METH_NOARGS, "hvd_state_commit()"},
    {"change_due", change_due, METH_NOARGS,
     "hvd_state_change_due(): whether the world is to change."},
    {"restore", restore, METH_NOARGS, "hvd_state_restore()"},
    {"sync", sync_state, METH_NOARGS, "hvd_state_sync()"},
    {"next", next_turn, METH_VARARGS,
     "next(code, reason): hvd_elastic_next(), after hvd_fail() if there is a reason: whether the\n"
     "function is to be called."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, state_new},
    {Py_tp_dealloc, state_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "State(compare_every)"},
    {0, NULL},
};

static PyType_Spec spec = {"hvd._core.State", sizeof(state), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

int add_state(PyObject* module) { return add_type(module, &spec); }
