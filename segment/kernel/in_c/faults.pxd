cdef extern from *:
    """
    #ifdef __linux__
    #include <errno.h>
    #include <fcntl.h>
    #include <signal.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* The C library's functions have new versions in glibc 2.28 and 2.33, and a wheel is for older ones, too. */
    #define KSEG_FLAGS(descriptor, command, flags) ((int) syscall(SYS_fcntl, descriptor, command, flags))
    #if defined(__x86_64__) || defined(__aarch64__)
    #define KSEG_STATUS(descriptor, status) syscall(SYS_fstat, descriptor, status)
    #else
    #define KSEG_STATUS(descriptor, status) fstat(descriptor, status)
    #endif

    #define KSEG_PAGE 4096
    #define KSEG_SECTOR 512
    #define KSEG_MAPS 16384
    #define KSEG_AREAS 4096

    typedef struct {
        char *start;
        long long length;
        int descriptor;
        int block;
        long long device, inode, mtime;
        int is_used;
    } kseg_map;

    typedef struct {
        long long device, inode, mtime, position, length, error, asked;
    } kseg_area;

    typedef struct {
        long long count;
        kseg_area areas[KSEG_AREAS];
    } kseg_areas;

    static kseg_map kseg_maps[KSEG_MAPS];
    static int kseg_last_map = 0;
    static kseg_areas *kseg_known = NULL;
    static struct sigaction kseg_former;
    static long long kseg_own_area = -1;
    static int kseg_own_process = 0;

    static long long kseg_count(void) {
        long long count = kseg_known ? __atomic_load_n(&kseg_known->count, __ATOMIC_ACQUIRE) : 0;
        return count < KSEG_AREAS ? count : KSEG_AREAS;
    }

    static int kseg_is_of(const kseg_area *area, long long device, long long inode, long long mtime) {
        return area->inode == inode && area->device == device && area->mtime == mtime;
    }

    static const kseg_area *kseg_area_at(const kseg_map *map, long long position) {
        long long i, count = kseg_count();
        for (i = 0; i < count; i++) {
            const kseg_area *area = &kseg_known->areas[i];
            if (kseg_is_of(area, map->device, map->inode, map->mtime)
                && area->position <= position && position < area->position + area->length) return area;
        }
        return NULL;
    }

    static int kseg_start(void);

    /* false: there is no room for one more */
    static int kseg_note(long long device, long long inode, long long mtime, long long position, long long length,
                         int error) {
        long long at;
        kseg_area *area;
        if (length <= 0 || (!kseg_known && !kseg_start())) return length <= 0;
        if (kseg_own_process == getpid() && kseg_own_area >= 0) {
            area = &kseg_known->areas[kseg_own_area];
            if (kseg_is_of(area, device, inode, mtime) && area->error == error
                && area->position + area->length == position) {
                area->length += length;
                area->asked++;
                return 1;
            }
        }
        at = __atomic_fetch_add(&kseg_known->count, 1, __ATOMIC_ACQ_REL);
        if (at >= KSEG_AREAS) return 0;
        area = &kseg_known->areas[at];
        area->device = device;
        area->mtime = mtime;
        area->position = position;
        area->length = length;
        area->error = error;
        area->asked = 1;
        __atomic_store_n(&area->inode, inode, __ATOMIC_RELEASE);
        kseg_own_area = at;
        kseg_own_process = getpid();
        return 1;
    }

    /* so many areas are bad already that the rest of the file counts as one */
    static void kseg_note_rest(const kseg_map *map, long long position, int error) {
        kseg_area *area = &kseg_known->areas[KSEG_AREAS - 1];
        kseg_own_area = -1;
        area->device = map->device;
        area->inode = map->inode;
        area->mtime = map->mtime;
        area->position = position;
        area->length = map->length - position;
        area->error = error;
    }

    /* an error that is the file's and not that of a place in it: nothing more is asked */
    static int kseg_is_of_the_file(int error) {
        return error == ESTALE || error == ENOTCONN || error == ENODEV || error == ENXIO || error == EBADF;
    }

    /* Fills a fresh page with what can be read of it. 0: nothing more of this file is to be asked. */
    static int kseg_fill(const kseg_map *map, char *page) {
        long long position = page - map->start, stop = position + KSEG_PAGE, at;
        int flags = KSEG_FLAGS(map->descriptor, F_GETFL, 0), goes_on = 1;
        int is_direct = flags >= 0 && !(flags & O_DIRECT) && !KSEG_FLAGS(map->descriptor, F_SETFL, flags | O_DIRECT);
        int step = is_direct || map->block < KSEG_SECTOR ? KSEG_SECTOR : map->block;
        if (stop > map->length) stop = map->length;
        for (at = position; at < stop && goes_on; at += step) {
            const kseg_area *known = kseg_area_at(map, at);
            long long wanted = at + step < position + KSEG_PAGE ? step : position + KSEG_PAGE - at;
            ssize_t got;
            if (known) continue;
            got = pread(map->descriptor, page + (at - position), wanted, at);
            if (got < 0 && errno == EINVAL && is_direct) {
                is_direct = 0;
                KSEG_FLAGS(map->descriptor, F_SETFL, flags);
                if (map->block > step) step = map->block;
                wanted = at + step < position + KSEG_PAGE ? step : position + KSEG_PAGE - at;
                got = pread(map->descriptor, page + (at - position), wanted, at);
            }
            if (at + wanted > stop) wanted = stop - at;
            if (got < 0) {
                int error = errno;
                goes_on = !kseg_is_of_the_file(error);
                if (!kseg_note(map->device, map->inode, map->mtime, at, goes_on ? wanted : map->length - at, error)) {
                    kseg_note_rest(map, at, error);
                    goes_on = 0;
                }
            } else if (got < wanted) {
                struct stat now;
                long long end = at + got;
                if (!KSEG_STATUS(map->descriptor, &now) && now.st_size < end) end = now.st_size;
                goes_on = 0;
                kseg_note(map->device, map->inode, map->mtime, end, map->length - end, 0);
            }
        }
        if (is_direct) KSEG_FLAGS(map->descriptor, F_SETFL, flags);
        return goes_on;
    }

    static int kseg_replace(const kseg_map *map, char *page) {
        char *end = map->start + (map->length + KSEG_PAGE - 1) / KSEG_PAGE * KSEG_PAGE;
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(page, KSEG_PAGE, PROT_READ | PROT_WRITE, kind, -1, 0) == MAP_FAILED) return 0;
        if (!kseg_fill(map, page) && page + KSEG_PAGE < end)
            mmap(page + KSEG_PAGE, end - page - KSEG_PAGE, PROT_READ | PROT_WRITE, kind, -1, 0);
        return 1;
    }

    /* whether the kernel says that what is mapped at an address cannot be had; a signal that a process has sent has no address,
       and one for an address that is not aligned, or for spoilt memory that nobody has touched yet, is not about a file */
    static int kseg_is_of_a_page(const siginfo_t *info) {
        return info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR || info->si_code == BUS_MCEERR_AR;
    }

    static void kseg_on_fault(int number, siginfo_t *info, void *context);

    static int kseg_is_own(const struct sigaction *action) {
        return action->sa_flags & SA_SIGINFO && action->sa_sigaction == kseg_on_fault;
    }

    /* Does what would have been done without this module: the former handler is called as if it were the one in force.
       One that was set behind this one may put this one back and send the signal anew when it has done its work, as
       faulthandler does; nobody is left to ask then. */
    static void kseg_pass_on(int number, siginfo_t *info, void *context) {
        struct sigaction own, now;
        if (kseg_former.sa_handler == SIG_IGN && info->si_code <= 0) return;  /* a fault of one's own cannot be ignored */
        if (kseg_former.sa_handler == SIG_DFL || kseg_former.sa_handler == SIG_IGN) {
            signal(number, SIG_DFL);
            if (info->si_code <= 0) raise(number);  /* it comes when this handler is left, where a fault happens anew */
            return;
        }
        sigaction(number, &kseg_former, &own);
        if (kseg_former.sa_flags & SA_SIGINFO) kseg_former.sa_sigaction(number, info, context);
        else kseg_former.sa_handler(number);
        if (sigaction(number, NULL, &now)) return;
        if (kseg_is_own(&now)) memset(&kseg_former, 0, sizeof kseg_former);  /* SIG_DFL */
        else if (now.sa_handler == kseg_former.sa_handler) sigaction(number, &own, NULL);
    }

    static void kseg_on_fault(int number, siginfo_t *info, void *context) {
        int former_errno = errno, i, is_done = 0;
        char *address = (char *) info->si_addr;
        for (i = 0; i < kseg_last_map && !is_done && kseg_is_of_a_page(info); i++) {
            const kseg_map *map = &kseg_maps[i];
            if (__atomic_load_n(&map->is_used, __ATOMIC_ACQUIRE) && map->start <= address
                && address - map->start < (map->length + KSEG_PAGE - 1) / KSEG_PAGE * KSEG_PAGE)
                is_done = kseg_replace(map, map->start + (address - map->start) / KSEG_PAGE * KSEG_PAGE);
        }
        errno = former_errno;
        if (!is_done) kseg_pass_on(number, info, context);
    }

    static int kseg_start(void) {
        if (kseg_known) return 1;
        if (sysconf(_SC_PAGESIZE) != KSEG_PAGE) return 0;
        kseg_known = (kseg_areas *) mmap(NULL, sizeof(kseg_areas), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                         -1, 0);
        if (kseg_known == MAP_FAILED) kseg_known = NULL;
        return kseg_known != NULL;
    }

    /* Makes sure that a fault comes here first: whoever embeds kseg may have set a handler since the last map. */
    static int kseg_listen(void) {
        struct sigaction action, now;
        if (sigaction(SIGBUS, NULL, &now)) return 0;
        if (kseg_is_own(&now)) return 1;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = kseg_on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        kseg_former = now;
        return !sigaction(SIGBUS, &action, NULL);
    }

    static int kseg_watch(const unsigned char *start, long long length, int descriptor, int block, long long device,
                          long long inode, long long mtime) {
        int i;
        long long at, count;
        kseg_map *map;
        for (i = 0; i < KSEG_MAPS && kseg_maps[i].is_used; i++);
        if (i == KSEG_MAPS || !kseg_start() || !kseg_listen()) return -1;
        map = &kseg_maps[i];
        map->start = (char *) start;
        map->length = length;
        map->descriptor = descriptor;
        map->block = block > KSEG_PAGE ? KSEG_PAGE : block;
        map->device = device;
        map->inode = inode;
        map->mtime = mtime;
        if (i >= kseg_last_map) kseg_last_map = i + 1;
        __atomic_store_n(&map->is_used, 1, __ATOMIC_RELEASE);
        count = kseg_count();
        for (at = 0; at < count; at++) {  /* what is known to be bad is not asked again */
            const kseg_area *area = &kseg_known->areas[at];
            if (kseg_is_of(area, device, inode, mtime)) {
                long long page = area->position / KSEG_PAGE * KSEG_PAGE;
                for (; page < area->position + area->length && page < length; page += KSEG_PAGE)
                    kseg_replace(map, map->start + page);
            }
        }
        return i;
    }

    static void kseg_unwatch(int number) {
        if (number >= 0 && number < KSEG_MAPS) __atomic_store_n(&kseg_maps[number].is_used, 0, __ATOMIC_RELEASE);
    }

    static void kseg_tell(long long number, long long *out) {
        const kseg_area *area = &kseg_known->areas[number];
        out[0] = area->device;
        out[1] = area->inode;
        out[2] = area->mtime;
        out[3] = area->position;
        out[4] = area->length;
        out[5] = area->error;
        out[6] = area->asked;
    }

    static void kseg_forget(void) {
        if (kseg_known) kseg_known->count = 0;
        kseg_own_area = -1;
    }
    #else
    static int kseg_start(void) { return 0; }
    static int kseg_watch(const unsigned char *start, long long length, int descriptor, int block, long long device,
                          long long inode, long long mtime) { return -1; }
    static void kseg_unwatch(int number) {}
    static int kseg_note(long long device, long long inode, long long mtime, long long position, long long length,
                         int error) { return 0; }
    static long long kseg_count(void) { return 0; }
    static void kseg_tell(long long number, long long *out) {}
    static void kseg_forget(void) {}
    #endif
    """
    int start "kseg_start" () noexcept
    int watch "kseg_watch" (const unsigned char* start, long long length, int descriptor, int block, long long device, long long inode, long long mtime) noexcept
    void unwatch "kseg_unwatch" (int number) noexcept
    int note "kseg_note" (long long device, long long inode, long long mtime, long long position, long long length, int error) noexcept
    long long count "kseg_count" () noexcept
    void tell "kseg_tell" (long long number, long long* out) noexcept
    void forget "kseg_forget" () noexcept
