// Preloaded (LD_PRELOAD) into the processes of a job: a disk that goes bad. The variable BAD_FILES
// names a directory. What happens to the files in it stands in the file named by BAD_FILES_MODE:
//   full       nothing can be written
//   read-only  nothing can be created, nor written
//   hang       whatever is done waits until the word changes
//   slow MS    fsync() of a file takes so long, by itself
//   no-sync    a directory cannot be brought to the disk
// With another word, or none, all is well.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void pause_for(long milliseconds) {
  struct timespec rest = {milliseconds / 1000, (milliseconds % 1000) * 1000000};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

static ssize_t real_write(int fd, const void* bytes, size_t size) {
  static ssize_t (*real)(int, const void*, size_t);
  if (real == NULL) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  return real(fd, bytes, size);
}

static int real_open(const char* path, int flags, mode_t mode) {
  static int (*real)(const char*, int, ...);
  if (real == NULL) real = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  return real(path, flags, mode);
}

static int is_bad_path(const char* path) {
  const char* const bad = getenv("BAD_FILES");
  return bad != NULL && strncmp(path, bad, strlen(bad)) == 0;
}

static int is_bad(int fd) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = '\0';
  return is_bad_path(path);
}

static void read_mode(char mode[32]) {
  mode[0] = '\0';
  const char* const file = getenv("BAD_FILES_MODE");
  const int fd = file == NULL ? -1 : real_open(file, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return;
  const ssize_t size = read(fd, mode, 31);
  mode[size > 0 ? size : 0] = '\0';
  close(fd);
}

// The error of an operation on a bad file; 0: it is to be done.
static int error_of(int creates) {
  char mode[32];
  for (read_mode(mode); strncmp(mode, "hang", 4) == 0; read_mode(mode)) pause_for(20);
  if (strncmp(mode, "read-only", 9) == 0) return EROFS;
  return strncmp(mode, "full", 4) == 0 && !creates ? ENOSPC : 0;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (is_bad(fd)) {
    const int error = error_of(0);
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  return real_write(fd, bytes, size);
}

static ssize_t pwrite_to(const char* name, int fd, const void* bytes, size_t size, off_t at) {
  ssize_t (*real)(int, const void*, size_t, off_t) =
      (ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, name);
  if (is_bad(fd)) {
    const int error = error_of(0);
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  return real(fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite_to("pwrite", fd, bytes, size, at);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite_to("pwrite64", fd, bytes, size, at);
}

static int open_checked(const char* path, int flags, mode_t mode) {
  if ((flags & O_ACCMODE) != O_RDONLY && is_bad_path(path)) {
    const int error = error_of(1);
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  return real_open(path, flags, mode);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_checked(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_checked(path, flags | O_LARGEFILE, mode);
}

int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  if (!is_bad(fd)) return real(fd);
  struct stat about;
  const int is_directory = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
  char mode[32];
  read_mode(mode);
  if (strncmp(mode, "slow ", 5) == 0 && !is_directory) pause_for(atol(mode + 5));
  if (strncmp(mode, "no-sync", 7) == 0 && is_directory) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}
