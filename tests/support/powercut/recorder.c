/*
 * Records what a program does to the files below $RECORD_FOLDER, for `support.powercut.recording`.
 *
 * LD_PRELOAD puts these functions in front of libc's. Each record is one write to $RECORD_FILE, so several processes
 * can share the file. A write is recorded before it happens, a name after it changed. A flush is recorded at its
 * beginning and at its successful end: it covers what was recorded before its beginning.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct record { uint32_t magic, kind; uint64_t inode; int64_t number; uint64_t length; };
enum { CREATE = 1, WRITE, TRUNCATE, FLUSH, FLUSHED, LINK, RENAME, UNLINK, FOLDER, UNKNOWN };
enum { NEITHER, A_FILE, A_FOLDER };

static int log_fd = -2;
static char root[PATH_MAX];
static size_t root_length;
static int64_t flushes;

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name); \
    begin()

static void begin(void)
{
    if (log_fd != -2) return;
    char *folder = getenv("RECORD_FOLDER"), *file = getenv("RECORD_FILE");
    log_fd = -1;
    if (!folder || !file) return;
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    int low = real_open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_fd = fcntl(low, F_DUPFD_CLOEXEC, 900); /* away from the numbers that programs choose */
    close(low);
}

static void record(uint32_t kind, uint64_t inode, int64_t number, const void *data, uint64_t length)
{
    struct record head = {0x54555043, kind, inode, number, length};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, length}};
    ssize_t (*real_writev)(int, const struct iovec *, int) =
        (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (real_writev(log_fd, parts, 2) != (ssize_t)(sizeof head + length)) abort();
}

/* Whether a path is the folder or below it. SQLite writes its -shm file through memory, and does not need it later. */
static int is_below(const char *path)
{
    size_t length = strlen(path);
    if (length > 4 && !strcmp(path + length - 4, "-shm")) return 0;
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* What an open file is, if it is below the folder. */
static int kind_of(int fd, uint64_t *inode, char *path)
{
    char link[64];
    struct stat found;
    if (log_fd < 0 || fd < 0) return NEITHER;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NEITHER;
    path[length] = 0;
    if (!is_below(path) || fstat(fd, &found)) return NEITHER;
    *inode = found.st_ino;
    return S_ISREG(found.st_mode) ? A_FILE : S_ISDIR(found.st_mode) ? A_FOLDER : NEITHER;
}

/* The absolute path of a name, and whether it is below the folder. */
static int absolute(int at, const char *path, char *whole)
{
    char base[PATH_MAX] = "", link[64];
    if (log_fd < 0) return 0;
    if (path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        ssize_t length = readlink(link, base, PATH_MAX - 1);
        if (length < 0) return 0;
        base[length] = 0;
    }
    if (snprintf(whole, PATH_MAX, "%s%s%s", base, path[0] == '/' ? "" : "/", path) >= PATH_MAX) return 0;
    return is_below(whole);
}

static uint64_t inode_of(const char *path)
{
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

static int opened(int fd, int flags)
{
    uint64_t inode;
    char path[PATH_MAX];
    if (fd < 0 || !(flags & (O_CREAT | O_TRUNC)) || kind_of(fd, &inode, path) != A_FILE) return fd;
    if (flags & O_CREAT) record(CREATE, inode, 0, path, strlen(path));
    if (flags & O_TRUNC) record(TRUNCATE, inode, 0, NULL, 0);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { REAL(int, #name, const char *, int, ...); MODE(flags) return opened(real(path, flags, mode), flags); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { REAL(int, #name, int, const char *, int, ...); MODE(flags) return opened(real(at, path, flags, mode), flags); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static void writes(int fd, const struct iovec *parts, int count, off_t at)
{
    uint64_t inode;
    char path[PATH_MAX];
    struct stat found;
    if (kind_of(fd, &inode, path) != A_FILE) return;
    if (at < 0) {
        at = lseek(fd, 0, SEEK_CUR);
        if (fcntl(fd, F_GETFL) & O_APPEND && !fstat(fd, &found)) at = found.st_size;
    }
    for (int each = 0; each < count; at += parts[each++].iov_len)
        record(WRITE, inode, at, parts[each].iov_base, parts[each].iov_len);
}

#define ONE(data, length) &(struct iovec){(void *)data, length}, 1
ssize_t write(int fd, const void *data, size_t length)
{ REAL(ssize_t, "write", int, const void *, size_t); writes(fd, ONE(data, length), -1); return real(fd, data, length); }
#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t length, off_t at) \
    { REAL(ssize_t, #name, int, const void *, size_t, off_t); writes(fd, ONE(data, length), at); return real(fd, data, length, at); }
PWRITE(pwrite) PWRITE(pwrite64)
ssize_t writev(int fd, const struct iovec *parts, int count)
{ REAL(ssize_t, "writev", int, const struct iovec *, int); writes(fd, parts, count, -1); return real(fd, parts, count); }
#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) \
    { REAL(ssize_t, #name, int, const struct iovec *, int, off_t); writes(fd, parts, count, at); return real(fd, parts, count, at); }
PWRITEV(pwritev) PWRITEV(pwritev64)

static void truncated(int fd, int64_t size)
{
    uint64_t inode;
    char path[PATH_MAX];
    if (kind_of(fd, &inode, path) == A_FILE) record(TRUNCATE, inode, size, NULL, 0);
}

#define FTRUNCATE(name) \
    int name(int fd, off_t size) { REAL(int, #name, int, off_t); truncated(fd, size); return real(fd, size); }
FTRUNCATE(ftruncate) FTRUNCATE(ftruncate64)

static void allocated(int fd, int mode, off_t end)
{
    struct stat found;
    if (!(mode & FALLOC_FL_KEEP_SIZE) && !fstat(fd, &found) && found.st_size < end) truncated(fd, end);
}

#define FALLOCATE(name) \
    int name(int fd, int mode, off_t at, off_t length) \
    { REAL(int, #name, int, int, off_t, off_t); allocated(fd, mode, at + length); return real(fd, mode, at, length); }
#define POSIX_FALLOCATE(name) \
    int name(int fd, off_t at, off_t length) \
    { REAL(int, #name, int, off_t, off_t); allocated(fd, 0, at + length); return real(fd, at, length); }
FALLOCATE(fallocate) FALLOCATE(fallocate64) POSIX_FALLOCATE(posix_fallocate) POSIX_FALLOCATE(posix_fallocate64)

#define FSYNC(name) \
    int name(int fd) \
    { \
        REAL(int, #name, int); \
        uint64_t inode; \
        char path[PATH_MAX]; \
        int kind = kind_of(fd, &inode, path); \
        if (kind == NEITHER) return real(fd); \
        int64_t flush = ((int64_t)getpid() << 32) + __atomic_add_fetch(&flushes, 1, __ATOMIC_SEQ_CST); \
        record(FLUSH, inode, flush, path, kind == A_FOLDER ? strlen(path) : 0); \
        int result = real(fd); \
        if (!result) record(FLUSHED, inode, flush, NULL, 0); \
        return result; \
    }
FSYNC(fsync) FSYNC(fdatasync)

/* A changed name: the old path and, after a zero byte, the new path. */
static int renamed(int result, uint32_t kind, uint64_t inode, const char *from, const char *to)
{
    char both[2 * PATH_MAX];
    if (result) return result;
    size_t length = strlen(from) + 1;
    memcpy(both, from, length);
    strcpy(both + length, to);
    record(kind, inode, 0, both, length + strlen(to));
    return result;
}

#define TWO_NAMES(name, kind, parameters, real_parameters, from_at, to_at, ...) \
    int name parameters \
    { \
        REAL(int, #name, real_parameters); \
        char from[PATH_MAX], to[PATH_MAX]; \
        int is_from = absolute(from_at, old, from), is_to = absolute(to_at, new, to); \
        if (!is_from && !is_to) return real(__VA_ARGS__); \
        uint64_t inode = inode_of(from); \
        return renamed(real(__VA_ARGS__), is_from && is_to ? kind : UNKNOWN, inode, from, to); \
    }
#define COMMA ,
TWO_NAMES(rename, RENAME, (const char *old, const char *new), const char * COMMA const char *, AT_FDCWD, AT_FDCWD, old, new)
TWO_NAMES(renameat, RENAME, (int a, const char *old, int b, const char *new),
          int COMMA const char * COMMA int COMMA const char *, a, b, a, old, b, new)
TWO_NAMES(renameat2, flags == RENAME_EXCHANGE ? UNKNOWN : RENAME, (int a, const char *old, int b, const char *new, unsigned flags),
          int COMMA const char * COMMA int COMMA const char * COMMA unsigned, a, b, a, old, b, new, flags)
TWO_NAMES(link, LINK, (const char *old, const char *new), const char * COMMA const char *, AT_FDCWD, AT_FDCWD, old, new)
TWO_NAMES(linkat, LINK, (int a, const char *old, int b, const char *new, int flags),
          int COMMA const char * COMMA int COMMA const char * COMMA int, a, b, a, old, b, new, flags)

static int changed(int result, uint32_t kind, const char *path)
{
    if (!result) record(kind, kind == FOLDER ? inode_of(path) : 0, 0, path, strlen(path));
    return result;
}

#define ONE_NAME(name, kind, parameters, real_parameters, at, ...) \
    int name parameters \
    { \
        REAL(int, #name, real_parameters); \
        char whole[PATH_MAX]; \
        return absolute(at, path, whole) ? changed(real(__VA_ARGS__), kind, whole) : real(__VA_ARGS__); \
    }
ONE_NAME(unlink, UNLINK, (const char *path), const char *, AT_FDCWD, path)
ONE_NAME(rmdir, UNLINK, (const char *path), const char *, AT_FDCWD, path)
ONE_NAME(remove, UNLINK, (const char *path), const char *, AT_FDCWD, path)
ONE_NAME(unlinkat, UNLINK, (int at, const char *path, int flags), int COMMA const char * COMMA int, at, at, path, flags)
ONE_NAME(mkdir, FOLDER, (const char *path, mode_t mode), const char * COMMA mode_t, AT_FDCWD, path, mode)
ONE_NAME(mkdirat, FOLDER, (int at, const char *path, mode_t mode), int COMMA const char * COMMA mode_t, at, at, path, mode)

/* The replay does not know these calls, so it refuses a recording with one of them. */
static void unknown(int fd, const char *call)
{
    uint64_t inode;
    char path[PATH_MAX];
    if (kind_of(fd, &inode, path) == A_FILE) record(UNKNOWN, inode, 0, call, strlen(call));
}

#define MMAP(name) \
    void *name(void *at, size_t length, int protection, int flags, int fd, off_t from) \
    { \
        REAL(void *, #name, void *, size_t, int, int, int, off_t); \
        if (flags & MAP_SHARED && protection & PROT_WRITE) unknown(fd, "mmap"); \
        return real(at, length, protection, flags, fd, from); \
    }
MMAP(mmap) MMAP(mmap64)
ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags)
{ REAL(ssize_t, "copy_file_range", int, off_t *, int, off_t *, size_t, unsigned); unknown(to, "copy_file_range"); return real(from, from_at, to, to_at, length, flags); }
ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags)
{ REAL(ssize_t, "splice", int, off_t *, int, off_t *, size_t, unsigned); unknown(to, "splice"); return real(from, from_at, to, to_at, length, flags); }
#define SENDFILE(name) \
    ssize_t name(int to, int from, off_t *at, size_t length) \
    { REAL(ssize_t, #name, int, int, off_t *, size_t); unknown(to, "sendfile"); return real(to, from, at, length); }
SENDFILE(sendfile) SENDFILE(sendfile64)
