/* Faults of a file system, for any process that is started with this library in LD_PRELOAD.

   Calls on files below one root are counted, in all processes together, and the one with the number that was asked for
   kills its process, fails with an errno, or does only half of its work. What is counted and what happens stands in the
   control block, a file that all of them map (environment: KSEG_FAULTS); tests/faults/shim.py has the same layout. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, FAIL, SHORT };                  /* mode */
/* kind: bits of `kinds` that are counted. GROW: may need room; BYTES: can be done by half; UPDATE: opened for writing */
enum { LOOK = 1, CHANGE = 2, GROW = 4, SYNC = 8, BYTES = 16, UPDATE = 32 };

struct control {
    _Atomic int32_t mode;
    int32_t error;
    int32_t kinds;
    int32_t lasts;            /* whether all counted calls behind the first fail too */
    int64_t at;               /* which call, from 0 */
    _Atomic int64_t counter;
    _Atomic int32_t fired;    /* how often */
    int32_t log;              /* write a line for each call to the file descriptor, 0: no */
    char root[512];
    char what[1024];          /* the first call that it happened to */
    _Atomic int64_t by_kinds[64]; /* calls by all of their kinds, whichever are counted */
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KSEG_FAULTS");
    if (path == NULL) return;
    int descriptor = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (map != MAP_FAILED) control = map;
    syscall(SYS_close, descriptor);
}

static int is_on(void) { return control != NULL && control->mode != OFF; }

static int is_below(const char *path) {
    size_t length = strlen(control->root);
    return strncmp(path, control->root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int of_descriptor(int descriptor, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* whether a path is below the root; `full` becomes the whole of it */
static int concerns(int directory, const char *path, char *full, size_t size) {
    if (path == NULL) return 0;
    if (path[0] == '/') {
        snprintf(full, size, "%s", path);
    } else {
        char head[2048];
        if (directory == AT_FDCWD) {
            if (syscall(SYS_getcwd, head, sizeof head) < 0) return 0;
        } else if (!of_descriptor(directory, head, sizeof head)) {
            return 0;
        }
        snprintf(full, size, "%s/%s", head, path);
    }
    return is_below(full);
}

enum { GO, STOP, HALF };

/* counts a call that concerns the root; STOP: errno is set */
static int counted(const char *name, const char *path, int kind) {
    atomic_fetch_add(&control->by_kinds[kind], 1);
    if (!(kind & control->kinds)) return GO;
    int64_t number = atomic_fetch_add(&control->counter, 1);
    if (control->log) {
        char line[2400];
        int length = snprintf(line, sizeof line, "%lld %s %s\n", (long long)number, name, path);
        syscall(SYS_write, control->log, line, length);
    }
    int32_t mode = control->mode;
    if (mode == COUNT || number < control->at || (number > control->at && !control->lasts)) return GO;
    if (atomic_fetch_add(&control->fired, 1) == 0) snprintf(control->what, sizeof control->what, "%s %s", name, path);
    switch (mode) {
    case KILL:
        if (kind & BYTES) return HALF;
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
        return GO;
    case SHORT:
        return kind & BYTES ? HALF : GO;
    default:
        errno = control->error;
        return STOP;
    }
}

static void after_half(void) {
    if (control->mode == KILL) {
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
    }
}

static int at_path(const char *name, int directory, const char *path, int kind) {
    char full[4096];
    if (!is_on() || !concerns(directory, path, full, sizeof full)) return GO;
    return counted(name, full, kind);
}

static int at_descriptor(const char *name, int descriptor, int kind) {
    char full[4096];
    if (!is_on() || !of_descriptor(descriptor, full, sizeof full) || !is_below(full)) return GO;
    return counted(name, full, kind);
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* --- opening */

static int open_kind(int directory, const char *path, int flags) {
    if ((flags & O_TMPFILE) == O_TMPFILE) return CHANGE | GROW;
    if (flags & O_CREAT) {
        char full[4096];
        struct stat status;
        int is_there = concerns(directory, path, full, sizeof full) &&
                       syscall(SYS_newfstatat, AT_FDCWD, full, &status, AT_SYMLINK_NOFOLLOW) == 0;
        if (!is_there) return CHANGE | GROW;
    }
    if (flags & O_TRUNC) return CHANGE;
    return (flags & O_ACCMODE) == O_RDONLY ? LOOK : UPDATE;
}

static int opened(const char *name, int directory, const char *path, int flags) {
    if (!is_on()) return GO;
    return at_path(name, directory, path, open_kind(directory, path, flags));
}

#define OPEN(symbol) \
    int symbol(const char *path, int flags, ...) { \
        REAL(int, symbol, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (opened("open", AT_FDCWD, path, flags) == STOP) return -1; \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(symbol) \
    int symbol(int directory, const char *path, int flags, ...) { \
        REAL(int, symbol, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (opened("openat", directory, path, flags) == STOP) return -1; \
        return real(directory, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define CREAT(symbol) \
    int symbol(const char *path, mode_t mode) { \
        REAL(int, symbol, const char *, mode_t); \
        if (at_path("creat", AT_FDCWD, path, CHANGE | GROW) == STOP) return -1; \
        return real(path, mode); \
    }
CREAT(creat)
CREAT(creat64)

#define FOPEN(symbol) \
    FILE *symbol(const char *path, const char *mode) { \
        REAL(FILE *, symbol, const char *, const char *); \
        if (at_path("fopen", AT_FDCWD, path, strchr(mode, 'r') ? LOOK : CHANGE | GROW) == STOP) return NULL; \
        return real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    if (at_path("opendir", AT_FDCWD, path, LOOK) == STOP) return NULL;
    return real(path);
}

DIR *fdopendir(int descriptor) {
    REAL(DIR *, fdopendir, int);
    if (at_descriptor("fdopendir", descriptor, LOOK) == STOP) return NULL;
    return real(descriptor);
}

#define READDIR(symbol, type) \
    struct type *symbol(DIR *stream) { \
        REAL(struct type *, symbol, DIR *); \
        if (at_descriptor("readdir", dirfd(stream), LOOK) == STOP) return NULL; \
        return real(stream); \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/* --- bytes */

#define WRITE(name, symbol, kind, parameters, types, ...) \
    ssize_t symbol parameters { \
        static ssize_t (*real) types; \
        if (real == NULL) real = (ssize_t (*) types)dlsym(RTLD_NEXT, #symbol); \
        int way = at_descriptor(name, descriptor, kind); \
        if (way == STOP) return -1; \
        size_t all = count; \
        if (way == HALF && count > 1) count /= 2; \
        if (way == HALF && control->mode == KILL && all <= 1) after_half(); \
        ssize_t done = real(__VA_ARGS__); \
        if (way == HALF) after_half(); \
        return done; \
    }
WRITE("write", write, CHANGE | GROW | BYTES, (int descriptor, const void *data, size_t count), (int, const void *, size_t), descriptor, data, count)
WRITE("pwrite", pwrite, CHANGE | GROW | BYTES, (int descriptor, const void *data, size_t count, off_t position), (int, const void *, size_t, off_t), descriptor, data, count, position)
WRITE("pwrite", pwrite64, CHANGE | GROW | BYTES, (int descriptor, const void *data, size_t count, off64_t position), (int, const void *, size_t, off64_t), descriptor, data, count, position)
WRITE("read", read, LOOK, (int descriptor, void *data, size_t count), (int, void *, size_t), descriptor, data, count)
WRITE("pread", pread, LOOK, (int descriptor, void *data, size_t count, off_t position), (int, void *, size_t, off_t), descriptor, data, count, position)
WRITE("pread", pread64, LOOK, (int descriptor, void *data, size_t count, off64_t position), (int, void *, size_t, off64_t), descriptor, data, count, position)
WRITE("copy_file_range", copy_file_range, CHANGE | GROW | BYTES, (int source, off64_t *from, int descriptor, off64_t *to, size_t count, unsigned flags), (int, off64_t *, int, off64_t *, size_t, unsigned), source, from, descriptor, to, count, flags)
WRITE("sendfile", sendfile, CHANGE | GROW | BYTES, (int descriptor, int source, off_t *from, size_t count), (int, int, off_t *, size_t), descriptor, source, from, count)
WRITE("sendfile", sendfile64, CHANGE | GROW | BYTES, (int descriptor, int source, off64_t *from, size_t count), (int, int, off64_t *, size_t), descriptor, source, from, count)

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    int way = at_descriptor("writev", descriptor, CHANGE | GROW | BYTES);
    if (way == STOP) return -1;
    ssize_t done = real(descriptor, parts, way == HALF ? (count + 1) / 2 : count);
    if (way == HALF) after_half();
    return done;
}

#define MMAP(symbol, offset) \
    void *symbol(void *address, size_t length, int protection, int flags, int descriptor, offset position) { \
        REAL(void *, symbol, void *, size_t, int, int, int, offset); \
        if (descriptor >= 0 && at_descriptor("mmap", descriptor, LOOK) == STOP) return MAP_FAILED; \
        return real(address, length, protection, flags, descriptor, position); \
    }
MMAP(mmap64, off64_t)

int ioctl(int descriptor, unsigned long request, ...) {
    REAL(int, ioctl, int, unsigned long, ...);
    va_list rest; va_start(rest, request); void *argument = va_arg(rest, void *); va_end(rest);
    if (request == 0x40049409 && at_descriptor("ioctl(FICLONE)", descriptor, CHANGE | GROW) == STOP) return -1;
    return real(descriptor, request, argument);
}

/* --- everything that takes a descriptor, or one path, or two */

#define BY_DESCRIPTOR(symbol, kind, parameters, types, ...) \
    int symbol parameters { \
        static int (*real) types; \
        if (real == NULL) real = (int (*) types)dlsym(RTLD_NEXT, #symbol); \
        if (at_descriptor(#symbol, descriptor, kind) == STOP) return -1; \
        return real(__VA_ARGS__); \
    }
BY_DESCRIPTOR(fsync, SYNC, (int descriptor), (int), descriptor)
BY_DESCRIPTOR(fdatasync, SYNC, (int descriptor), (int), descriptor)
BY_DESCRIPTOR(ftruncate, CHANGE | GROW, (int descriptor, off_t size), (int, off_t), descriptor, size)
BY_DESCRIPTOR(ftruncate64, CHANGE | GROW, (int descriptor, off64_t size), (int, off64_t), descriptor, size)
BY_DESCRIPTOR(fallocate, CHANGE | GROW, (int descriptor, int mode, off_t position, off_t count), (int, int, off_t, off_t), descriptor, mode, position, count)
BY_DESCRIPTOR(fallocate64, CHANGE | GROW, (int descriptor, int mode, off64_t position, off64_t count), (int, int, off64_t, off64_t), descriptor, mode, position, count)
BY_DESCRIPTOR(fchmod, CHANGE, (int descriptor, mode_t mode), (int, mode_t), descriptor, mode)
BY_DESCRIPTOR(fchown, CHANGE, (int descriptor, uid_t owner, gid_t group), (int, uid_t, gid_t), descriptor, owner, group)
BY_DESCRIPTOR(futimens, CHANGE, (int descriptor, const struct timespec *times), (int, const struct timespec *), descriptor, times)
BY_DESCRIPTOR(fstat, LOOK, (int descriptor, struct stat *status), (int, struct stat *), descriptor, status)
BY_DESCRIPTOR(fstat64, LOOK, (int descriptor, struct stat64 *status), (int, struct stat64 *), descriptor, status)
BY_DESCRIPTOR(flock, LOOK, (int descriptor, int operation), (int, int), descriptor, operation)

#define BY_PATH(symbol, kind, parameters, types, ...) \
    int symbol parameters { \
        static int (*real) types; \
        if (real == NULL) real = (int (*) types)dlsym(RTLD_NEXT, #symbol); \
        if (at_path(#symbol, AT_FDCWD, path, kind) == STOP) return -1; \
        return real(__VA_ARGS__); \
    }
BY_PATH(unlink, CHANGE, (const char *path), (const char *), path)
BY_PATH(rmdir, CHANGE, (const char *path), (const char *), path)
BY_PATH(remove, CHANGE, (const char *path), (const char *), path)
BY_PATH(mkdir, CHANGE | GROW, (const char *path, mode_t mode), (const char *, mode_t), path, mode)
BY_PATH(truncate, CHANGE | GROW, (const char *path, off_t size), (const char *, off_t), path, size)
BY_PATH(truncate64, CHANGE | GROW, (const char *path, off64_t size), (const char *, off64_t), path, size)
BY_PATH(chmod, CHANGE, (const char *path, mode_t mode), (const char *, mode_t), path, mode)
BY_PATH(chown, CHANGE, (const char *path, uid_t owner, gid_t group), (const char *, uid_t, gid_t), path, owner, group)
BY_PATH(lchown, CHANGE, (const char *path, uid_t owner, gid_t group), (const char *, uid_t, gid_t), path, owner, group)
BY_PATH(setxattr, CHANGE | GROW, (const char *path, const char *name, const void *value, size_t size, int flags), (const char *, const char *, const void *, size_t, int), path, name, value, size, flags)
BY_PATH(stat, LOOK, (const char *path, struct stat *status), (const char *, struct stat *), path, status)
BY_PATH(stat64, LOOK, (const char *path, struct stat64 *status), (const char *, struct stat64 *), path, status)
BY_PATH(lstat, LOOK, (const char *path, struct stat *status), (const char *, struct stat *), path, status)
BY_PATH(lstat64, LOOK, (const char *path, struct stat64 *status), (const char *, struct stat64 *), path, status)

#define BY_PLACE(symbol, kind, parameters, types, ...) \
    int symbol parameters { \
        static int (*real) types; \
        if (real == NULL) real = (int (*) types)dlsym(RTLD_NEXT, #symbol); \
        int way = path == NULL || path[0] == 0 ? at_descriptor(#symbol, directory, kind) : at_path(#symbol, directory, path, kind); \
        if (way == STOP) return -1; \
        return real(__VA_ARGS__); \
    }
BY_PLACE(unlinkat, CHANGE, (int directory, const char *path, int flags), (int, const char *, int), directory, path, flags)
BY_PLACE(mkdirat, CHANGE | GROW, (int directory, const char *path, mode_t mode), (int, const char *, mode_t), directory, path, mode)
BY_PLACE(fchmodat, CHANGE, (int directory, const char *path, mode_t mode, int flags), (int, const char *, mode_t, int), directory, path, mode, flags)
BY_PLACE(fchownat, CHANGE, (int directory, const char *path, uid_t owner, gid_t group, int flags), (int, const char *, uid_t, gid_t, int), directory, path, owner, group, flags)
BY_PLACE(utimensat, CHANGE, (int directory, const char *path, const struct timespec *times, int flags), (int, const char *, const struct timespec *, int), directory, path, times, flags)
BY_PLACE(fstatat, LOOK, (int directory, const char *path, struct stat *status, int flags), (int, const char *, struct stat *, int), directory, path, status, flags)
BY_PLACE(fstatat64, LOOK, (int directory, const char *path, struct stat64 *status, int flags), (int, const char *, struct stat64 *, int), directory, path, status, flags)
BY_PLACE(statx, LOOK, (int directory, const char *path, int flags, unsigned mask, struct statx *status), (int, const char *, int, unsigned, struct statx *), directory, path, flags, mask, status)

#define WITH_NEW(symbol, kind, parameters, types, directory, path, ...) \
    int symbol parameters { \
        static int (*real) types; \
        if (real == NULL) real = (int (*) types)dlsym(RTLD_NEXT, #symbol); \
        if (at_path(#symbol, directory, path, kind) == STOP) return -1; \
        return real(__VA_ARGS__); \
    }
WITH_NEW(rename, CHANGE | GROW, (const char *old, const char *path), (const char *, const char *), AT_FDCWD, path, old, path)
WITH_NEW(renameat, CHANGE | GROW, (int from, const char *old, int to, const char *path), (int, const char *, int, const char *), to, path, from, old, to, path)
WITH_NEW(renameat2, CHANGE | GROW, (int from, const char *old, int to, const char *path, unsigned flags), (int, const char *, int, const char *, unsigned), to, path, from, old, to, path, flags)
WITH_NEW(link, CHANGE | GROW, (const char *old, const char *path), (const char *, const char *), AT_FDCWD, path, old, path)
WITH_NEW(linkat, CHANGE | GROW, (int from, const char *old, int to, const char *path, int flags), (int, const char *, int, const char *, int), to, path, from, old, to, path, flags)
WITH_NEW(symlink, CHANGE | GROW, (const char *old, const char *path), (const char *, const char *), AT_FDCWD, path, old, path)
WITH_NEW(symlinkat, CHANGE | GROW, (const char *old, int to, const char *path), (const char *, int, const char *), to, path, old, to, path)
