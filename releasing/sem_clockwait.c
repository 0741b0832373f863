/* sem_clockwait(3) of glibc 2.30 for older ones: waits by the wall clock, as CPython did before that function was there. */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <time.h>

#define NS_PER_S 1000000000L

__asm__(".symver sem_timedwait,sem_timedwait@GLIBC_2.2.5");

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    struct timespec now, wall, deadline;

    if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME) {
        errno = EINVAL;
        return -1;
    }
    if (clock == CLOCK_REALTIME)
        return sem_timedwait(semaphore, until);
    if (clock_gettime(clock, &now) || clock_gettime(CLOCK_REALTIME, &wall))
        return -1;
    deadline.tv_sec = wall.tv_sec + (until->tv_sec - now.tv_sec);
    deadline.tv_nsec = wall.tv_nsec + (until->tv_nsec - now.tv_nsec);
    if (deadline.tv_nsec < 0) {
        deadline.tv_nsec += NS_PER_S;
        deadline.tv_sec--;
    } else if (deadline.tv_nsec >= NS_PER_S) {
        deadline.tv_nsec -= NS_PER_S;
        deadline.tv_sec++;
    }
    return sem_timedwait(semaphore, &deadline);
}
