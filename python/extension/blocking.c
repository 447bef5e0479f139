/* Calls that block, in such a way that the interpreter stays awake. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "extension.h"

enum { kSliceMs = 50 };

/* Shared by the thread that calls and the one that waits; the last of the two frees it. */
typedef struct blocking {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  blocking_call call;
  void* data;
  int64_t result;
  failure_text* failure; /* of a negative result */
  int done;
  atomic_int owners;
} blocking;

static void release(blocking* own) {
  if (atomic_fetch_sub(&own->owners, 1) > 1) return;
  free_failure(own->failure);
  pthread_cond_destroy(&own->changed);
  pthread_mutex_destroy(&own->mutex);
  free(own);
}

static void* run(void* data) {
  blocking* const own = data;
  const int64_t result = own->call(own->data);
  failure_text* const failure = result < 0 ? take_failure(result) : NULL;
  pthread_mutex_lock(&own->mutex);
  own->result = result;
  own->failure = failure;
  own->done = 1;
  pthread_cond_signal(&own->changed);
  pthread_mutex_unlock(&own->mutex);
  release(own);
  return NULL;
}

static blocking* make(blocking_call call, void* data) {
  blocking* const own = calloc(1, sizeof(blocking));
  if (own == NULL) return NULL;
  own->call = call;
  own->data = data;
  atomic_init(&own->owners, 2);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&own->mutex, NULL);
  pthread_cond_init(&own->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  return own;
}

/* 0, or an errno. Signals are for the threads of Python. */
static int start(blocking* own) {
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run, own);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

/* Without the GIL. 1: the call has come back. */
static int wait_a_slice(blocking* own) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += kSliceMs * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    ++until.tv_sec;
  }
  pthread_mutex_lock(&own->mutex);
  while (!own->done && pthread_cond_timedwait(&own->changed, &own->mutex, &until) != ETIMEDOUT) {
  }
  const int done = own->done;
  pthread_mutex_unlock(&own->mutex);
  return done;
}

int run_blocking(blocking_call call, void* data, int64_t* result) {
  blocking* const own = make(call, data);
  if (own == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  if (start(own) != 0) {
    /* Without a thread of its own the call cannot be interrupted. If it fails, its own error names
     * the missing resource. */
    Py_BEGIN_ALLOW_THREADS run(own);
    Py_END_ALLOW_THREADS
  }

  for (;;) {
    int done = 0;
    Py_BEGIN_ALLOW_THREADS done = wait_a_slice(own);
    Py_END_ALLOW_THREADS if (done) break;
    if (PyErr_CheckSignals() != 0) {
      release(own);
      return -1;
    }
  }
  *result = own->result;
  if (own->result < 0) raise_failure(own->failure, own->result);
  const int outcome = own->result < 0 ? -1 : 0;
  release(own);
  return outcome;
}

int wait_for_work(hvd_handle handle) {
  for (;;) {
    int code = HVD_OK;
    Py_BEGIN_ALLOW_THREADS code = hvd_wait_for(handle, kSliceMs);
    Py_END_ALLOW_THREADS if (code == HVD_OK) return 0;
    if (code != HVD_ERROR_NOT_READY) {
      raise_code(code);
      return -1;
    }
    if (PyErr_CheckSignals() != 0) return -1;
  }
}
