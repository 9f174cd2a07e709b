/*
 * LD_PRELOAD: writes down what a program had the kernel bring to disk, so that killing it can be turned into a
 * loss of power afterwards (tests/system/support/power-loss.ts does that).
 *
 * Lines in the file $SYNC_LOG, one write(2) each, fields apart by tabs:
 *   S <inode> <birth in ns> <size>        a successful fsync or fdatasync of a file; size as it was before the call
 *   D                                     a successful fsync of a directory
 *   R <1: a file was replaced> <from> <to>   a successful rename, absolute paths
 *
 * An inode is used again after a file is gone; with the time of its birth it names one file for ever.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_renameat2)(int, const char *, int, const char *, unsigned);
static int log_fd = -1;

/* Before main: no thread can see half of it. */
__attribute__((constructor)) static void open_log(void) {
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  real_rename = dlsym(RTLD_NEXT, "rename");
  real_renameat = dlsym(RTLD_NEXT, "renameat");
  real_renameat2 = dlsym(RTLD_NEXT, "renameat2");
  const char *path = getenv("SYNC_LOG");
  if (path == NULL) return;
  log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void write_line(const char *line, int length) {
  int before = errno;
  if (log_fd >= 0 && length > 0 && write(log_fd, line, (size_t)length) != length) abort();
  errno = before;
}

/* What is known of a file before it is synced: what is written meanwhile may or may not get there. */
static int describe(int fd, char *line, size_t room) {
  struct statx file;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &file) != 0) return 0;
  if (S_ISDIR(file.stx_mode)) return snprintf(line, room, "D\n");
  if (!S_ISREG(file.stx_mode)) return 0;
  unsigned long long birth = file.stx_btime.tv_sec * 1000000000ULL + file.stx_btime.tv_nsec;
  return snprintf(line, room, "S\t%llu\t%llu\t%llu\n", (unsigned long long)file.stx_ino, birth,
                  (unsigned long long)file.stx_size);
}

int fsync(int fd) {
  char line[128];
  int length = describe(fd, line, sizeof line);
  int result = real_fsync(fd);
  if (result == 0) write_line(line, length);
  return result;
}

int fdatasync(int fd) {
  char line[128];
  int length = describe(fd, line, sizeof line);
  int result = real_fdatasync(fd);
  if (result == 0) write_line(line, length);
  return result;
}

/* The absolute form of a path given to one of the *at calls; 0 when it cannot be told. */
static int resolve(int dir, const char *path, char *out) {
  char link[64];
  if (path[0] == '/') return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
  if (dir == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
  else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
  ssize_t length = readlink(link, out, PATH_MAX - 1);
  if (length <= 0) return 0;
  return snprintf(out + length, (size_t)(PATH_MAX - length), "/%s", path) < PATH_MAX - length;
}

static void note_rename(int is_replaced, int from_dir, const char *from, int to_dir, const char *to) {
  static __thread char paths[2][PATH_MAX], line[2 * PATH_MAX + 16];
  int before = errno;
  if (resolve(from_dir, from, paths[0]) && resolve(to_dir, to, paths[1]))
    write_line(line, snprintf(line, sizeof line, "R\t%d\t%s\t%s\n", is_replaced, paths[0], paths[1]));
  errno = before;
}

static int exists(int dir, const char *path) {
  int before = errno;
  int found = faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  errno = before;
  return found;
}

int rename(const char *from, const char *to) {
  int is_replaced = exists(AT_FDCWD, to);
  int result = real_rename(from, to);
  if (result == 0) note_rename(is_replaced, AT_FDCWD, from, AT_FDCWD, to);
  return result;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
  int is_replaced = exists(to_dir, to);
  int result = real_renameat(from_dir, from, to_dir, to);
  if (result == 0) note_rename(is_replaced, from_dir, from, to_dir, to);
  return result;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
  int is_replaced = exists(to_dir, to);
  int result = real_renameat2(from_dir, from, to_dir, to, flags);
  if (result == 0) note_rename(is_replaced, from_dir, from, to_dir, to);
  return result;
}
