/* Collectives, and the work that they start. */
#include <pthread.h>
#include <stdlib.h>

#include "extension.h"

/* --- what is in flight although nobody holds it --- */

/* The buffers of such work stay alive until it is done. Only touched with the GIL. */
typedef struct abandoned {
  struct abandoned* next;
  int64_t handle;
  const abandoned_kind* kind;
  PyObject* keep;
} abandoned;

static abandoned* all_abandoned;

void sweep_abandoned(void) {
  for (abandoned** link = &all_abandoned; *link != NULL;) {
    abandoned* const one = *link;
    if (one->kind->in_flight(one->handle) == 1) {
      link = &one->next;
      continue;
    }
    *link = one->next;
    one->kind->release(one->handle);
    Py_DECREF(one->keep);
    PyMem_Free(one);
    /* A destructor may have changed the list. */
    link = &all_abandoned;
  }
}

void abandon(int64_t handle, const abandoned_kind* kind, PyObject* keep) {
  abandoned* const one = PyMem_Malloc(sizeof(abandoned));
  if (one == NULL) return;
  one->next = all_abandoned;
  one->handle = handle;
  one->kind = kind;
  one->keep = keep;
  all_abandoned = one;
}

static int work_in_flight(int64_t handle) { return hvd_ready(handle) == 0; }
static const abandoned_kind kAbandonedWork = {work_in_flight, hvd_release};

/* --- who is told that work is done --- */

typedef struct completion {
  struct completion* next;
  uint64_t tag;
} completion;

static pthread_mutex_t completions_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t completions_changed = PTHREAD_COND_INITIALIZER;
static completion* first_completion;
static completion* last_completion;

/* On a thread of hvd. */
static void push_completion(void* data, int code) {
  (void)code;
  completion* const done = data;
  pthread_mutex_lock(&completions_mutex);
  if (last_completion == NULL) {
    first_completion = done;
  } else {
    last_completion->next = done;
  }
  last_completion = done;
  pthread_cond_signal(&completions_changed);
  pthread_mutex_unlock(&completions_mutex);
}

static PyObject* end_completions(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  completion* const end = calloc(1, sizeof(completion));
  if (end == NULL) return PyErr_NoMemory();
  push_completion(end, HVD_OK);
  Py_RETURN_NONE;
}

static PyObject* next_completion(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  completion* done = NULL;
  Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&completions_mutex);
  while (first_completion == NULL) pthread_cond_wait(&completions_changed, &completions_mutex);
  done = first_completion;
  first_completion = done->next;
  if (first_completion == NULL) last_completion = NULL;
  pthread_mutex_unlock(&completions_mutex);
  Py_END_ALLOW_THREADS const uint64_t tag = done->tag;
  free(done);
  return PyLong_FromUnsignedLongLong(tag);
}

/* --- the type Work --- */

typedef struct work {
  PyObject ob_base;
  hvd_handle handle;
  PyObject* keep; /* what the buffers belong to */
} work;

static PyTypeObject* work_type;

static void work_dealloc(PyObject* self) {
  work* const own = (work*)self;
  PyTypeObject* const type = Py_TYPE(self);
  if (own->handle != 0) {
    if (hvd_ready(own->handle) == 0 && own->keep != NULL) {
      abandon(own->handle, &kAbandonedWork, own->keep);
      own->keep = NULL;
    } else {
      hvd_release(own->handle);
    }
  }
  Py_XDECREF(own->keep);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject* work_wait(PyObject* self, PyObject* none) {
  (void)none;
  if (wait_for_work(((work*)self)->handle) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* work_ready(PyObject* self, PyObject* none) {
  (void)none;
  return PyBool_FromLong(hvd_ready(((work*)self)->handle) != 0);
}

static PyObject* work_results(PyObject* self, PyObject* none) {
  (void)none;
  work* const own = (work*)self;
  const int count = hvd_result_count(own->handle);
  if (count < 0) return raise_code(count);
  PyObject* const list = PyList_New(count);
  if (list == NULL) return NULL;
  for (int i = 0; i < count; ++i) {
    hvd_tensor tensor = HVD_TENSOR_INIT;
    const int code = hvd_result(own->handle, (size_t)i, &tensor);
    PyObject* const tuple = code == HVD_OK ? tensor_tuple(&tensor) : raise_code(code);
    if (tuple == NULL || PyList_SetItem(list, i, tuple) != 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

static PyObject* work_received_splits(PyObject* self, PyObject* none) {
  (void)none;
  const int64_t* splits = NULL;
  size_t count = 0;
  const int code = hvd_received_splits(((work*)self)->handle, &splits, &count);
  if (code != HVD_OK) return raise_code(code);
  PyObject* const list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; ++i) {
    PyObject* const rows = PyLong_FromLongLong(splits[i]);
    if (rows == NULL || PyList_SetItem(list, (Py_ssize_t)i, rows) != 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

static PyObject* work_last_joined(PyObject* self, PyObject* none) {
  (void)none;
  const int rank = hvd_last_joined(((work*)self)->handle);
  return rank < 0 ? raise_code(rank) : PyLong_FromLong(rank);
}

static PyObject* work_notify(PyObject* self, PyObject* tag) {
  const uint64_t number = PyLong_AsUnsignedLongLong(tag);
  if (PyErr_Occurred()) return NULL;
  completion* const done = calloc(1, sizeof(completion));
  if (done == NULL) return PyErr_NoMemory();
  done->tag = number;
  const int code = hvd_on_done(((work*)self)->handle, push_completion, done);
  if (code == HVD_OK) Py_RETURN_NONE;
  free(done);
  return raise_code(code);
}

static PyMethodDef work_methods[] = {
    {"wait", work_wait, METH_NOARGS, "Blocks until the work is done, and raises what went wrong."},
    {"ready", work_ready, METH_NOARGS, "Whether wait() would return at once."},
    {"results", work_results, METH_NOARGS, "The results, as tuples, valid as long as this object."},
    {"received_splits", work_received_splits, METH_NOARGS, "Of alltoall: rows from each rank."},
    {"last_joined", work_last_joined, METH_NOARGS, "Of join: the rank that came last."},
    {"notify", work_notify, METH_O, "Hands the tag to next_completion() when the work is done."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot work_slots[] = {
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_methods, work_methods},
    {Py_tp_doc, "Work in flight, or its results."},
    {0, NULL},
};

static PyType_Spec work_spec = {
    "hvd._core.Work", sizeof(work), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, work_slots};

/* --- starting work --- */

enum kind {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReducescatter,
  kBarrier,
  kJoin,
  kSparseAllreduce,
  kSend,
  kRecv,
  kKinds
};

static int start_one(int kind, const hvd_tensor* inputs, const hvd_tensor* outputs,
                     const hvd_options* options, hvd_handle* handle) {
  switch (kind) {
    case kAllreduce:
      return hvd_allreduce_async(inputs, outputs, options, handle);
    case kBroadcast:
      return hvd_broadcast_async(inputs, outputs, options, handle);
    case kAllgather:
      return hvd_allgather_async(inputs, options, handle);
    case kAlltoall:
      return hvd_alltoall_async(inputs, options, handle);
    case kReducescatter:
      return hvd_reducescatter_async(inputs, outputs, options, handle);
    case kBarrier:
      return hvd_barrier_async(options, handle);
    case kJoin:
      return hvd_join_async(handle);
    case kSend:
      return hvd_send_async(inputs, options->root, options, handle);
    case kRecv:
      return hvd_recv_async(inputs, options->root, options, handle);
    default:
      return HVD_ERROR_INVALID_ARGUMENT;
  }
}

static int start_group(int kind, const hvd_tensor* inputs, const hvd_tensor* outputs, size_t count,
                       const hvd_options* options, hvd_handle* handle) {
  switch (kind) {
    case kAllreduce:
      return hvd_grouped_allreduce_async(inputs, outputs, count, options, handle);
    case kAllgather:
      return hvd_grouped_allgather_async(inputs, count, options, handle);
    case kReducescatter:
      return hvd_grouped_reducescatter_async(inputs, count, options, handle);
    case kSparseAllreduce:
      return hvd_sparse_allreduce_async(&inputs[0], &inputs[1], options, handle);
    default:
      return HVD_ERROR_INVALID_ARGUMENT;
  }
}

static int64_t* read_splits(PyObject* from, size_t* count) {
  const Py_ssize_t size = PySequence_Size(from);
  if (size < 0) return NULL;
  int64_t* const splits = PyMem_Calloc((size_t)size + 1, sizeof(int64_t));
  if (splits == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const item = PySequence_GetItem(from, i);
    splits[i] = item == NULL ? -1 : PyLong_AsLongLong(item);
    Py_XDECREF(item);
    if (PyErr_Occurred()) {
      PyMem_Free(splits);
      return NULL;
    }
  }
  *count = (size_t)size;
  return splits;
}

typedef struct request {
  int kind;
  PyObject* inputs;
  PyObject* outputs;
  PyObject* splits;
  hvd_options options;
} request;

/* A code of hvd, or 1: an exception is set. */
static int submit(request* own, hvd_handle* handle) {
  const hvd_options* const options = &own->options;
  if (own->inputs == Py_None) return start_one(own->kind, NULL, NULL, options, handle);
  if (PyTuple_Check(own->inputs)) {
    shaped_tensor input;
    shaped_tensor output;
    if (read_tensor(own->inputs, &input) != 0) return 1;
    if (own->outputs == Py_None) {
      return start_one(own->kind, &input.tensor, NULL, options, handle);
    }
    if (read_tensor(own->outputs, &output) != 0) return 1;
    return start_one(own->kind, &input.tensor, &output.tensor, options, handle);
  }

  Py_ssize_t count = 0;
  Py_ssize_t output_count = 0;
  hvd_tensor* const inputs = read_tensors(own->inputs, &count);
  if (inputs == NULL) return 1;
  hvd_tensor* outputs = NULL;
  int code = 1;
  if (own->outputs != Py_None) {
    outputs = read_tensors(own->outputs, &output_count);
    if (outputs == NULL) goto end;
  }
  if ((outputs != NULL && output_count != count) || (own->kind == kSparseAllreduce && count != 2)) {
    PyErr_SetString(PyExc_ValueError, "the lists of a group differ in length");
    goto end;
  }
  code = start_group(own->kind, inputs, outputs, (size_t)count, options, handle);
end:
  PyMem_Free(inputs);
  PyMem_Free(outputs);
  return code;
}

static PyObject* start(PyObject* module, PyObject* arguments) {
  (void)module;
  request own = {0, NULL, NULL, NULL, HVD_OPTIONS_INIT};
  PyObject* keep = NULL;
  long long stream = -1;
  if (!PyArg_ParseTuple(arguments, "iOOziiddiiOOL", &own.kind, &own.inputs, &own.outputs,
                        &own.options.name, &own.options.op, &own.options.compression,
                        &own.options.prescale, &own.options.postscale, &own.options.root,
                        &own.options.process_set, &own.splits, &keep, &stream)) {
    return NULL;
  }
  sweep_abandoned();
  int64_t* splits = NULL;
  if (own.splits != Py_None) {
    splits = read_splits(own.splits, &own.options.split_count);
    if (splits == NULL) return NULL;
    own.options.splits = splits;
  }
  hvd_ready_event event = HVD_READY_EVENT_INIT;
  if (stream >= 0) {
    const int code = hvd_cuda_in_order_of((hvd_cuda_stream)(uintptr_t)stream, &event);
    if (code != HVD_OK) {
      PyMem_Free(splits);
      return raise_code(code);
    }
    own.options.ready = &event;
    own.options.ready_count = 1;
  }

  hvd_handle handle = 0;
  const int code = submit(&own, &handle);
  PyMem_Free(splits);
  if (code == 1) {
    if (event.release != NULL) event.release(event.data);
    return NULL;
  }
  if (code != HVD_OK) return raise_code(code);
  work* const made = (work*)PyType_GenericAlloc(work_type, 0);
  if (made == NULL) {
    abandon(handle, &kAbandonedWork, Py_NewRef(keep));
    return NULL;
  }
  made->handle = handle;
  made->keep = Py_NewRef(keep);
  return (PyObject*)made;
}

/* --- objects --- */

typedef struct object_call {
  int gather;
  const void* bytes;
  size_t size;
  hvd_options options;
  hvd_handle handle;
} object_call;

static int64_t call_with_object(void* data) {
  object_call* const own = data;
  return own->gather ? hvd_allgather_object(own->bytes, own->size, &own->options, &own->handle)
                     : hvd_broadcast_object(own->bytes, own->size, &own->options, &own->handle);
}

static PyObject* exchange_object(PyObject* module, PyObject* arguments) {
  (void)module;
  int gather = 0;
  PyObject* bytes = NULL;
  const char* name = NULL;
  int root = 0;
  int process_set = 0;
  if (!PyArg_ParseTuple(arguments, "pSzii", &gather, &bytes, &name, &root, &process_set)) {
    return NULL;
  }
  object_call* const own = calloc(1, sizeof(object_call));
  if (own == NULL) return PyErr_NoMemory();
  const hvd_options defaults = HVD_OPTIONS_INIT;
  own->gather = gather;
  own->bytes = PyBytes_AsString(bytes);
  own->size = (size_t)PyBytes_Size(bytes);
  own->options = defaults;
  own->options.name = name;
  own->options.root = root;
  own->options.process_set = process_set;

  /* A call that a signal cuts off goes on, with all that it points to. */
  Py_INCREF(arguments);
  Py_INCREF(bytes);
  int64_t result = 0;
  const int outcome = run_blocking(call_with_object, own, &result);
  if (outcome != 0 && result >= 0) return NULL;
  Py_DECREF(bytes);
  Py_DECREF(arguments);
  const hvd_handle handle = own->handle;
  free(own);
  if (outcome != 0) return NULL;
  work* const made = (work*)PyType_GenericAlloc(work_type, 0);
  if (made == NULL) {
    hvd_release(handle);
    return NULL;
  }
  made->handle = handle;
  return (PyObject*)made;
}

static PyMethodDef functions[] = {
    {"start", start, METH_VARARGS,
     "start(kind, inputs, outputs, name, op, compression, prescale, postscale, root, process_set,\n"
     "splits, keep, stream): starts a collective, and gives its Work. `keep` lives as long."},
    {"exchange_object", exchange_object, METH_VARARGS,
     "exchange_object(gather, bytes, name, root, process_set): the Work, done."},
    {"next_completion", next_completion, METH_NOARGS,
     "Blocks until work is done that was asked to notify, and gives its tag; 0 is the end."},
    {"end_completions", end_completions, METH_NOARGS,
     "next_completion() gives 0 after the tags of all work that is done by now."},
    {NULL, NULL, 0, NULL},
};

int add_work(PyObject* module) {
  work_type = (PyTypeObject*)PyType_FromSpec(&work_spec);
  if (work_type == NULL || PyModule_AddType(module, work_type) != 0) return -1;
  return PyModule_AddFunctions(module, functions);
}
