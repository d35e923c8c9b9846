/* Preloaded into a server: moves the wall clock by the milliseconds in the file that SUITE_CLOCK names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Only system calls here: the server's allocator reads the clock before the C library is ready. */
static int64_t offset(void) {
    static volatile int64_t *mapped;
    static int looked;
    if (!looked) {
        looked = 1;
        const char *path = getenv("SUITE_CLOCK");
        int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0) : -1;
        if (file >= 0) {
            void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
            if (page != MAP_FAILED) mapped = page;
            syscall(SYS_close, file);
        }
    }
    return mapped ? *mapped : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = now->tv_nsec + offset() % 1000 * 1000000;
        now->tv_sec += offset() / 1000 + (nanos >= 1000000000) - (nanos < 0);
        now->tv_nsec = (nanos + 1000000000) % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    (void)zone;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
