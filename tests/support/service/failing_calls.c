/* Makes one call of the C library fail, in a program with this library in LD_PRELOAD.

The environment variable FAILING_CALLS names a file that all processes of the program map. Its first integers are: the
kind of call that must fail, or -1; the number of such calls until one fails; its error number; whether a call has
failed. Then come the calls of each kind so far, and from byte 256 on the text of the failed call. Only calls on files
below the directory of that file count, and calls without a file. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>


enum kind { OPEN, READ, WRITE, SYNC, TRUNCATE, RENAME, UNLINK, MKDIR, STAT, LIST, FLOCK, LOCK, MAP,
            THREAD, FORK, ACCEPT, DESCRIPTOR, DATABASE, KINDS };
static const char *const NAMES[] = {"open", "read", "write", "sync", "truncate", "rename", "unlink", "mkdir", "stat",
    "list", "flock", "lock", "map", "thread", "fork", "accept", "descriptor", "database"};
struct control { int armed, left, error, failed, counts[KINDS]; };

static struct control *control;
static char below[4096];
static int database_port;

extern int __fxstat64(int, int, struct stat64 *), __xstat64(int, const char *, struct stat64 *), __lxstat64(int, const char *, struct stat64 *); /* of old glibc */

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILING_CALLS"), *port = getenv("FAILING_CALLS_PORT");
    if (!path) return;
    database_port = port ? atoi(port) : 0;
    snprintf(below, sizeof below, "%s", path);
    *(strrchr(below, '/') + 1) = 0;
    int fd = REAL(open64)(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = REAL(mmap64)(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) control = mapped;
}

static int fails(enum kind kind, const char *name) {
    if (!control) return 0;
    __atomic_add_fetch(&control->counts[kind], 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&control->armed, __ATOMIC_SEQ_CST) != (int)kind) return 0;
    if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    snprintf((char *)control + 256, 1024, "%s %s of process %d", NAMES[kind], name, getpid());
    errno = control->error;
    __atomic_store_n(&control->failed, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static int path_fails(enum kind kind, const char *path) {
    return control && path && !strncmp(path, below, strlen(below)) && fails(kind, path + strlen(below));
}

static int file_fails(enum kind kind, int fd) {
    if (!control || fd < 0) return 0;
    int before = errno;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return path_fails(kind, path);
}

static int peer_fails(int fd) {
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    int before = errno, is_database = control && database_port && !getpeername(fd, (void *)&peer, &length)
        && peer.sin_family == AF_INET && ntohs(peer.sin_port) == database_port;
    errno = before;
    return is_database && fails(DATABASE, "socket");
}

#define OPENS(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
    return path_fails(OPEN, path) ? -1 : REAL(name)(path, flags, mode); }
OPENS(open64)

#define ON_FILE(kind, type, name, parameters, ...) type name parameters { \
    return file_fails(kind, fd) ? -1 : REAL(name)(__VA_ARGS__); }
ON_FILE(READ, ssize_t, read, (int fd, void *to, size_t size), fd, to, size)
ON_FILE(READ, ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), fd, to, size, at)
ON_FILE(WRITE, ssize_t, write, (int fd, const void *from, size_t size), fd, from, size)
ON_FILE(WRITE, ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), fd, from, size, at)
ON_FILE(SYNC, int, fsync, (int fd), fd)
ON_FILE(SYNC, int, fdatasync, (int fd), fd)
ON_FILE(TRUNCATE, int, ftruncate64, (int fd, off64_t size), fd, size)
ON_FILE(STAT, int, fstat64, (int fd, struct stat64 *to), fd, to)
ON_FILE(STAT, int, __fxstat64, (int version, int fd, struct stat64 *to), version, fd, to)
ON_FILE(FLOCK, int, flock, (int fd, int operation), fd, operation)

#define ON_PATH(kind, name, parameters, ...) int name parameters { \
    return path_fails(kind, path) ? -1 : REAL(name)(__VA_ARGS__); }
ON_PATH(RENAME, rename, (const char *path, const char *to), path, to)
ON_PATH(UNLINK, unlink, (const char *path), path)
ON_PATH(UNLINK, rmdir, (const char *path), path)
ON_PATH(MKDIR, mkdir, (const char *path, mode_t mode), path, mode)
ON_PATH(STAT, stat64, (const char *path, struct stat64 *to), path, to)
ON_PATH(STAT, lstat64, (const char *path, struct stat64 *to), path, to)
ON_PATH(STAT, __xstat64, (int version, const char *path, struct stat64 *to), version, path, to)
ON_PATH(STAT, __lxstat64, (int version, const char *path, struct stat64 *to), version, path, to)

DIR *opendir(const char *path) { return path_fails(LIST, path) ? NULL : REAL(opendir)(path); }

/* Linux refuses to unlock only without memory for a few bytes. SQLite then keeps the lock until its process ends. */
int fcntl64(int fd, int operation, ...) {
    va_list rest; va_start(rest, operation); void *to = va_arg(rest, void *); va_end(rest);
    int locks = operation == F_SETLK && ((struct flock64 *)to)->l_type != F_UNLCK;
    return locks && file_fails(LOCK, fd) ? -1 : REAL(fcntl64)(fd, operation, to);
}

void *mmap64(void *at, size_t size, int may, int flags, int fd, off64_t from) {
    return file_fails(MAP, fd) ? MAP_FAILED : REAL(mmap64)(at, size, may, flags, fd, from);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    return fails(THREAD, "") ? control->error : REAL(pthread_create)(thread, how, run, with);
}
pid_t fork(void) { return fails(FORK, "") ? -1 : REAL(fork)(); }

int accept4(int fd, struct sockaddr *peer, socklen_t *length, int flags) {
    return fails(ACCEPT, "") ? -1 : REAL(accept4)(fd, peer, length, flags);
}
int epoll_create1(int flags) { return fails(DESCRIPTOR, "epoll") ? -1 : REAL(epoll_create1)(flags); }
int socketpair(int family, int type, int protocol, int pair[2]) {
    return fails(DESCRIPTOR, "socketpair") ? -1 : REAL(socketpair)(family, type, protocol, pair);
}
int socket(int family, int type, int protocol) {
    return fails(DESCRIPTOR, "socket") ? -1 : REAL(socket)(family, type, protocol);
}
int pipe2(int pair[2], int flags) { return fails(DESCRIPTOR, "pipe") ? -1 : REAL(pipe2)(pair, flags); }

ssize_t send(int fd, const void *from, size_t size, int flags) {
    return peer_fails(fd) ? -1 : REAL(send)(fd, from, size, flags);
}
ssize_t recv(int fd, void *to, size_t size, int flags) {
    return peer_fails(fd) ? -1 : REAL(recv)(fd, to, size, flags);
}
