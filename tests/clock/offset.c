// Shifts the wall clock of a test's Postgres by what a mapped file says.
//
// Preloaded into the server. The file that CLOCK_OFFSET_FILE names holds one 64-bit number of
// microseconds, which is added to every reading of the wall clock from the moment it is written, in
// backends that run already too. Monotonic clocks and all waiting stay real. Nothing else of libc is
// replaced: a library that also wraps epoll_wait() answers a signal handler with the real time, so
// that the server's own timeouts (statement, lock, deadlock) would no longer fire.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset_us;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort();
    close(file);
    offset_us = page;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!real_clock_gettime) start();
    int failed = real_clock_gettime(clock, out);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ns = out->tv_nsec + (*offset_us % 1000000) * 1000;
    out->tv_sec += *offset_us / 1000000 + (ns < 0 ? -1 : ns / 1000000000);
    out->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
