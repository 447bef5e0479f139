/* The module itself: init, places, process sets, the timeline. */
#include <stdlib.h>

#include "extension.h"

/* --- init and shutdown --- */

typedef struct init_call {
  hvd_init_options options;
  const int32_t** sets;
  size_t* sizes;
} init_call;

static void free_init(init_call* own) {
  for (size_t i = 0; own->sets != NULL && i < own->options.process_set_count; ++i) {
    free((void*)own->sets[i]);
  }
  free((void*)own->sets);
  free(own->sizes);
  free(own);
}

static int32_t* read_ranks(PyObject* list, size_t* count) {
  const Py_ssize_t size = PySequence_Size(list);
  if (size < 0) return NULL;
  int32_t* const ranks = calloc((size_t)size + 1, sizeof(int32_t));
  if (ranks == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const item = PySequence_GetItem(list, i);
    const long rank = item == NULL ? -1 : PyLong_AsLong(item);
    Py_XDECREF(item);
    if (!PyErr_Occurred() && rank != (int32_t)rank) {
      PyErr_SetString(PyExc_ValueError, "a rank of a process set is no rank");
    }
    if (PyErr_Occurred()) {
      free(ranks);
      return NULL;
    }
    ranks[i] = (int32_t)rank;
  }
  *count = (size_t)size;
  return ranks;
}

static int64_t call_init(void* data) { return hvd_init(&((init_call*)data)->options); }
static int64_t call_shutdown(void* data) {
  (void)data;
  return hvd_shutdown();
}
static int64_t call_stop_timeline(void* data) {
  (void)data;
  return hvd_stop_timeline();
}

static PyObject* none_or_blocked(blocking_call call, void* data) {
  int64_t result = 0;
  if (run_blocking(call, data, &result) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* init(PyObject* module, PyObject* arguments) {
  (void)module;
  int dynamic = 0;
  int shrink = 0;
  PyObject* sets = NULL;
  if (!PyArg_ParseTuple(arguments, "ppO", &dynamic, &shrink, &sets)) return NULL;
  const Py_ssize_t count = PySequence_Size(sets);
  if (count < 0) return NULL;
  init_call* const own = calloc(1, sizeof(init_call));
  if (own == NULL) return PyErr_NoMemory();
  const hvd_init_options defaults = HVD_INIT_OPTIONS_INIT;
  own->options = defaults;
  own->options.dynamic_process_sets = dynamic;
  own->options.process_sets_shrink = shrink;
  own->sets = calloc((size_t)count + 1, sizeof(int32_t*));
  own->sizes = calloc((size_t)count + 1, sizeof(size_t));
  if (own->sets == NULL || own->sizes == NULL) {
    free_init(own);
    return PyErr_NoMemory();
  }
  own->options.process_sets = own->sets;
  own->options.process_set_sizes = own->sizes;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const set = PySequence_GetItem(sets, i);
    own->sets[i] = set == NULL ? NULL : read_ranks(set, &own->sizes[i]);
    Py_XDECREF(set);
    if (own->sets[i] == NULL) {
      free_init(own);
      return NULL;
    }
    own->options.process_set_count = (size_t)i + 1;
  }

  int64_t result = 0;
  const int outcome = run_blocking(call_init, own, &result);
  /* After a signal the call goes on with what it points to. */
  if (outcome != 0 && result >= 0) return NULL;
  free_init(own);
  if (outcome != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* shutdown_hvd(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  return none_or_blocked(call_shutdown, NULL);
}

/* --- places and process sets --- */

static PyObject* number_or_raise(int64_t number) {
  return number < 0 ? raise_code(number) : PyLong_FromLongLong(number);
}

#define PLACE(name)                                         \
  static PyObject* name(PyObject* module, PyObject* none) { \
    (void)module;                                           \
    (void)none;                                             \
    return number_or_raise(hvd_##name());                   \
  }
PLACE(is_initialized)
PLACE(rank)
PLACE(size)
PLACE(local_rank)
PLACE(local_size)
PLACE(cross_rank)
PLACE(cross_size)
PLACE(is_homogeneous)
PLACE(mpi_built)
PLACE(mpi_enabled)
PLACE(mpi_threads_supported)
PLACE(ccl_built)
PLACE(cuda_device)
PLACE(cuda_device_count)
#undef PLACE

static PyObject* generation(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  uint64_t number = 0;
  const int code = hvd_generation(&number);
  return code != HVD_OK ? raise_code(code) : PyLong_FromUnsignedLongLong(number);
}

typedef struct set_call {
  int (*add)(const int32_t* ranks, size_t count); /* null: the set is removed */
  int32_t* ranks;
  size_t count;
  int32_t number;
} set_call;

static int64_t call_set(void* data) {
  const set_call* const own = data;
  return own->add == NULL ? hvd_remove_process_set(own->number) : own->add(own->ranks, own->count);
}

static PyObject* change_sets(const set_call* given) {
  set_call* const own = malloc(sizeof(set_call));
  if (own == NULL) {
    free(given->ranks);
    return PyErr_NoMemory();
  }
  *own = *given;
  int64_t result = 0;
  const int outcome = run_blocking(call_set, own, &result);
  if (outcome != 0 && result >= 0) return NULL;
  free(own->ranks);
  free(own);
  return outcome != 0 ? NULL : PyLong_FromLongLong(result);
}

static PyObject* add_process_set(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* ranks = NULL;
  int shrinks = 0;
  int by_members = 0;
  if (!PyArg_ParseTuple(arguments, "Opp", &ranks, &shrinks, &by_members)) return NULL;
  set_call call = {hvd_add_process_set, NULL, 0, 0};
  if (shrinks) call.add = hvd_add_shrinking_process_set;
  if (by_members) call.add = hvd_add_process_set_by_members;
  call.ranks = read_ranks(ranks, &call.count);
  return call.ranks == NULL ? NULL : change_sets(&call);
}

/* The argument of a function of one number. */
static int read_number(PyObject* argument, int32_t* number) {
  const long long value = PyLong_AsLongLong(argument);
  if (PyErr_Occurred()) return -1;
  *number = value == (int32_t)value ? (int32_t)value : -1;
  return 0;
}

static PyObject* remove_process_set(PyObject* module, PyObject* argument) {
  (void)module;
  set_call call = {NULL, NULL, 0, 0};
  return read_number(argument, &call.number) != 0 ? NULL : change_sets(&call);
}

#define OF_SET(name)                                            \
  static PyObject* name(PyObject* module, PyObject* argument) { \
    (void)module;                                               \
    int32_t number = 0;                                         \
    if (read_number(argument, &number) != 0) return NULL;       \
    return number_or_raise(hvd_##name(number));                 \
  }
OF_SET(process_set_size)
OF_SET(process_set_rank)
OF_SET(process_set_included)
#undef OF_SET

static PyObject* list_of(const int32_t* numbers, int count) {
  PyObject* const list = PyList_New(count);
  for (int i = 0; list != NULL && i < count; ++i) {
    PyObject* const number = PyLong_FromLong(numbers[i]);
    if (number == NULL || PyList_SetItem(list, i, number) != 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

/* A negative `set`: the numbers of all sets. */
static PyObject* read_list(int32_t set) {
  int32_t* numbers = NULL;
  int capacity = 0;
  for (;;) {
    const int count = set < 0 ? hvd_process_sets(numbers, (size_t)capacity)
                              : hvd_process_set_ranks(set, numbers, (size_t)capacity);
    if (count <= capacity) {
      PyObject* const list = count < 0 ? raise_code(count) : list_of(numbers, count);
      free(numbers);
      return list;
    }
    free(numbers);
    capacity = count;
    numbers = calloc((size_t)capacity, sizeof(int32_t));
    if (numbers == NULL) return PyErr_NoMemory();
  }
}

static PyObject* process_set_ranks(PyObject* module, PyObject* argument) {
  (void)module;
  int32_t number = 0;
  if (read_number(argument, &number) != 0) return NULL;
  return number < 0 ? raise_failure(NULL, HVD_ERROR_UNKNOWN_PROCESS_SET) : read_list(number);
}

static PyObject* process_sets(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  return read_list(-1);
}

/* --- shards --- */

static PyObject* shards_of(PyObject* module, PyObject* arguments) {
  (void)module;
  int shards = 0;
  int rank_of = 0;
  int size_of = 0;
  int32_t first = 0;
  int32_t last = 0;
  if (!PyArg_ParseTuple(arguments, "iii", &shards, &rank_of, &size_of)) return NULL;
  const int code = hvd_shards_of(shards, rank_of, size_of, &first, &last);
  return code != HVD_OK ? raise_code(code) : Py_BuildValue("(ii)", first, last);
}

static PyObject* shard_random(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned long long seed = 0;
  int shard = 0;
  unsigned long long step = 0;
  unsigned long long first = 0;
  Py_ssize_t count = 0;
  if (!PyArg_ParseTuple(arguments, "KiKKn", &seed, &shard, &step, &first, &count)) return NULL;
  if (count < 0 || count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(uint32_t)) {
    PyErr_SetString(PyExc_ValueError, "there cannot be so many numbers");
    return NULL;
  }
  PyObject* const bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
  if (bytes == NULL) return NULL;
  uint32_t* const numbers = (uint32_t*)(void*)PyBytes_AsString(bytes);
  const int code = hvd_shard_random(seed, shard, step, first, numbers, (size_t)count);
  if (code == HVD_OK) return bytes;
  Py_DECREF(bytes);
  return raise_code(code);
}

/* --- the timeline --- */

static PyObject* start_timeline(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* path = NULL;
  int mark_cycles = 0;
  if (!PyArg_ParseTuple(arguments, "sp", &path, &mark_cycles)) return NULL;
  return none_or_raise(hvd_start_timeline(path, mark_cycles));
}

static PyObject* stop_timeline(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  return none_or_blocked(call_stop_timeline, NULL);
}

static PyMethodDef functions[] = {
    {"set_errors", set_errors, METH_O, "set_errors(classes): {code: exception} for what fails."},
    {"init", init, METH_VARARGS, "init(dynamic_process_sets, process_sets_shrink, process_sets)"},
    {"shutdown", shutdown_hvd, METH_NOARGS, "Takes no part any more."},
    {"is_initialized", is_initialized, METH_NOARGS, "1 or 0."},
    {"rank", rank, METH_NOARGS, "This worker's rank."},
    {"size", size, METH_NOARGS, "The number of ranks."},
    {"local_rank", local_rank, METH_NOARGS, "The rank among those of this host."},
    {"local_size", local_size, METH_NOARGS, "The number of ranks of this host."},
    {"cross_rank", cross_rank, METH_NOARGS, "The rank among those of this local rank."},
    {"cross_size", cross_size, METH_NOARGS, "The number of ranks of this local rank."},
    {"is_homogeneous", is_homogeneous, METH_NOARGS, "1: all hosts have as many ranks."},
    {"cuda_device", cuda_device, METH_NOARGS, "The number of this worker's GPU."},
    {"mpi_built", mpi_built, METH_NOARGS, "1: there is a module for an MPI."},
    {"ccl_built", ccl_built, METH_NOARGS, "1: there is a module for oneCCL."},
    {"mpi_enabled", mpi_enabled, METH_NOARGS, "1: this world uses MPI."},
    {"mpi_threads_supported", mpi_threads_supported, METH_NOARGS,
     "1: it does, and MPI takes calls from several threads."},
    {"cuda_device_count", cuda_device_count, METH_NOARGS, "How many GPUs hvd can use."},
    {"generation", generation, METH_NOARGS, "The number of the world."},
    {"add_process_set", add_process_set, METH_VARARGS,
     "add_process_set(ranks, shrinks, by_members): its number."},
    {"remove_process_set", remove_process_set, METH_O, "remove_process_set(number)"},
    {"process_set_size", process_set_size, METH_O, "process_set_size(number)"},
    {"process_set_rank", process_set_rank, METH_O, "process_set_rank(number)"},
    {"process_set_included", process_set_included, METH_O, "process_set_included(number): 1 or 0."},
    {"process_set_ranks", process_set_ranks, METH_O, "process_set_ranks(number): a list."},
    {"process_sets", process_sets, METH_NOARGS, "The numbers of all process sets."},
    {"shards_of", shards_of, METH_VARARGS, "shards_of(shards, rank, size): (first, one behind)"},
    {"shard_random", shard_random, METH_VARARGS,
     "shard_random(seed, shard, step, first, count): numbers of 32 bits, as bytes."},
    {"start_timeline", start_timeline, METH_VARARGS, "start_timeline(path, mark_cycles)"},
    {"stop_timeline", stop_timeline, METH_NOARGS, "Returns when the file is complete."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "The calls of libhvd.", -1, functions, NULL, NULL, NULL, NULL};

int add_type(PyObject* module, PyType_Spec* spec) {
  PyTypeObject* const type = (PyTypeObject*)PyType_FromSpec(spec);
  if (type == NULL) return -1;
  const int result = PyModule_AddType(module, type);
  Py_DECREF(type);
  return result;
}

PyMODINIT_FUNC PyInit__core(void) {
  PyObject* const module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (add_memory(module) != 0 || add_work(module) != 0 || add_reducer(module) != 0 ||
      add_state(module) != 0 || add_xla(module) != 0 ||
      PyModule_AddStringConstant(module, "version", hvd_version()) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
