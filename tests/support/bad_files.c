// Preloaded (LD_PRELOAD) into the processes of a job: disks that go bad. The variable BAD_FILES
// lists directories, with colons between them. What happens to the files in DIR stands in DIR.mode,
// and may change at any time:
//   full        nothing can be written
//   read-only   nothing can be created, nor written
//   hang        whatever is done waits until the word changes
//   slow MS     fsync() of a file takes so long, by itself
//   rate BYTES  a write takes as long as on a disk that takes so many bytes a second
//   no-sync     a directory cannot be brought to the disk
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

enum { kPath = 4096, kMode = 32 };

// The name of the file that has the mode of this path; 0: no bad directory holds the path.
static int find_mode_file(const char* path, char file[kPath]) {
  const char* directory = getenv("BAD_FILES");
  while (directory != NULL && *directory != '\0') {
    const size_t size = strcspn(directory, ":");
    if (strncmp(path, directory, size) == 0 && (path[size] == '/' || path[size] == '\0')) {
      return snprintf(file, kPath, "%.*s.mode", (int)size, directory) < kPath;
    }
    directory += size + (directory[size] == ':');
  }
  return 0;
}

static int find_mode_file_of(int fd, char file[kPath]) {
  char link[64];
  char path[kPath];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = '\0';
  return find_mode_file(path, file);
}

static void read_mode(const char* file, char mode[kMode]) {
  mode[0] = '\0';
  const int fd = real_open(file, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return;
  const ssize_t size = read(fd, mode, kMode - 1);
  mode[size > 0 ? size : 0] = '\0';
  close(fd);
}

// The error of an operation on a bad file; 0: it is to be done. `size` is that of a write.
static int error_of(const char* file, int creates, size_t size) {
  char mode[kMode];
  for (read_mode(file, mode); strncmp(mode, "hang", 4) == 0; read_mode(file, mode)) pause_for(20);
  if (strncmp(mode, "rate ", 5) == 0) {
    const long rate = atol(mode + 5);
    if (rate > 0) pause_for((long)(size * 1000 / (size_t)rate));
  }
  if (strncmp(mode, "read-only", 9) == 0) return EROFS;
  return strncmp(mode, "full", 4) == 0 && !creates ? ENOSPC : 0;
}

// Whether it may be done; else errno is set.
static int may_write(int fd, size_t size) {
  char file[kPath];
  const int error = find_mode_file_of(fd, file) ? error_of(file, 0, size) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  return may_write(fd, size) ? real_write(fd, bytes, size) : -1;
}

static ssize_t pwrite_to(const char* name, int fd, const void* bytes, size_t size, off_t at) {
  ssize_t (*real)(int, const void*, size_t, off_t) =
      (ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, name);
  return may_write(fd, size) ? real(fd, bytes, size, at) : -1;
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite_to("pwrite", fd, bytes, size, at);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite_to("pwrite64", fd, bytes, size, at);
}

static int open_checked(const char* path, int flags, mode_t mode) {
  char file[kPath];
  if ((flags & O_ACCMODE) != O_RDONLY && find_mode_file(path, file)) {
    const int error = error_of(file, 1, 0);
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

// The path of a file that is named from an open directory.
static int path_from(int directory, const char* name, char path[kPath]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const ssize_t size = directory == AT_FDCWD
                           ? (ssize_t)(getcwd(path, kPath) == NULL ? 0 : strlen(path))
                           : readlink(link, path, kPath - 1);
  if (size <= 0) return 0;
  return snprintf(path + size, kPath - (size_t)size, "/%s", name) < kPath - size;
}

static int openat_checked(int directory, const char* name, int flags, mode_t mode) {
  static int (*real)(int, const char*, int, ...);
  if (real == NULL) real = (int (*)(int, const char*, int, ...))dlsym(RTLD_NEXT, "openat");
  char path[kPath];
  char file[kPath];
  const int writes = (flags & O_ACCMODE) != O_RDONLY && (flags & O_PATH) == 0;
  if (writes && name[0] != '/' && path_from(directory, name, path) && find_mode_file(path, file)) {
    const int error = error_of(file, 1, 0);
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  return real(directory, name, flags, mode);
}

int openat(int directory, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat_checked(directory, name, flags, mode);
}
int openat64(int directory, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat_checked(directory, name, flags | O_LARGEFILE, mode);
}

int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  char file[kPath];
  if (!find_mode_file_of(fd, file)) return real(fd);
  struct stat about;
  const int is_directory = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
  char mode[kMode];
  read_mode(file, mode);
  if (strncmp(mode, "slow ", 5) == 0 && !is_directory) pause_for(atol(mode + 5));
  if (strncmp(mode, "no-sync", 7) == 0 && is_directory) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}
