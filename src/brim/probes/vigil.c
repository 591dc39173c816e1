/* Looks at a handful of numbers once a poll, between two looks of the governor, and comes back as soon as one of them leaves its band; it knows nothing of what they mean, but for one: what a job
   holds (the working set of its memory group less its mapped files), because there is one request that must not wait for the interpreter. Which request that is, and from where
   on it is made, was decided before (policy/foresight.py); the loop puts it on the control page.

   What a look of the interpreter touches has to come back into the processor's caches after each second of sleep, and costs a hundred times what it costs in a row;
   this loop touches a few pages. Everything that it needs is laid out by vigil.py, whose structures mirror those here; nothing is allocated, nothing is decided, and
   every fault (a file that does not answer, a call that fails) is a reason to come back. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT, MEMORY, CALL, SAME }; /* what a source is */
enum { DUE, WOKEN, MOVED, FULL };  /* why we came back */
enum { LONGEST_KEY = 24 };

typedef struct {
    int64_t low, high;     /* inclusive; outside we come back */
    int64_t value;         /* as it was read last */
    int32_t size;          /* memory and calls: bytes of the number (4 or 8); texts: length of the key */
    int32_t offset;        /* memory and calls: where it stands; texts: what it is multiplied by */
    char key[LONGEST_KEY]; /* texts: how its line begins; empty: the number comes first */
} number;

typedef struct {
    int32_t kind, every;  /* asked at each `every`th poll */
    int32_t first, count; /* its numbers */
    int32_t fd, room;     /* texts: the file; texts and sameness: how many bytes of the buffer */
    char *buffer;
    int (*call)(intptr_t, intptr_t, intptr_t, intptr_t);
    intptr_t arguments[4]; /* of the call; sameness: the first is what the buffer is held against */
} source;

typedef struct {
    int32_t on, fired;       /* fired: 1 when the request was put on the page */
    int32_t use, files;      /* the sources that tell the group's use (one number) and its files: inactive, active, shared, mapped */
    int64_t over;            /* the request is made when the job holds more */
    int64_t held, at_ns, wall_ns; /* what it held, and when, as the request was made */
    int64_t grace_ns, code;  /* the deadline of the request from then on; the code of the directive */
    int64_t *directive, *deadline, *slow;              /* words of the page */
    int64_t *ahead_at, *ahead_wall, *ahead_length, length; /* those that tell what is about to be done, and how long the text is that stands there */
} request;

typedef struct {
    int32_t epoll, sources, kept, room; /* how many of the numbers are kept in a row; how many rows there is room for */
    int32_t filled, moved, polls, unused;
    int64_t poll_ns, until_ns;
    int64_t *beat; /* where the time of each poll is written; may be null */
    source *source;
    number *number;
    int64_t *rows; /* each: monotonic ns, wall ns, then the kept numbers */
    request *request;
} vigil;

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The number behind its key at a line's start, 0 where it is not there. Our own loops: the library's are on other pages, and these few bytes are not worth one. */
static int64_t number_in(const char *at, const number *asked) {
    int64_t found = 0;
    for (;;) {
        int32_t same = 0;
        while (same < asked->size && at[same] == asked->key[same])
            same++;
        if (same == asked->size)
            break;
        while (*at && *at != '\n')
            at++;
        if (!*at++)
            return 0;
    }
    for (at += asked->size; *at == ' '; at++)
        ;
    while (*at >= '0' && *at <= '9' && found < INT64_MAX / 20)
        found = found * 10 + *at++ - '0';
    return (int64_t)((uint64_t)found * (uint64_t)asked->offset);
}

static int64_t number_at(const char *buffer, const number *asked) {
    int64_t whole;
    uint32_t half;
    if (asked->size == 8) {
        memcpy(&whole, buffer + asked->offset, 8);
        return whole;
    }
    memcpy(&half, buffer + asked->offset, 4);
    return half;
}

/* Ask one source for all its numbers: 0 where each is in its band, 1 where one is not, -1 where it does not answer. */
static int ask(vigil *v, source *from) {
    int out = 0;
    if (from->kind == SAME) {
        const char *was = (const char *)from->arguments[0];
        for (int32_t at = 0; at < from->room; at++)
            out |= from->buffer[at] != was[at];
    } else if (from->kind == TEXT) {
        ssize_t got = pread(from->fd, from->buffer, (size_t)from->room - 1, 0);
        if (got <= 0)
            return -1;
        from->buffer[got] = 0;
    } else if (from->kind == CALL) {
        intptr_t *with = from->arguments;
        if (from->call(with[0], with[1], with[2], with[3]) != 0)
            return -1;
    }
    for (number *one = v->number + from->first, *end = one + from->count; one < end; one++) {
        one->value = from->kind == TEXT ? number_in(from->buffer, one) : number_at(from->buffer, one);
        out |= one->value < one->low || one->value > one->high;
    }
    return out;
}

/* Where the job holds more than it was decided it may: what is about to be done is told first, then the deadline is set, then the request is made, each in one word. */
static void make(vigil *v, request *r) {
    if (!r || !r->on || r->fired || ask(v, v->source + r->use) < 0 || ask(v, v->source + r->files) < 0)
        return;
    const number *use = v->number + v->source[r->use].first, *files = v->number + v->source[r->files].first;
    int64_t mapped = files[3].value > files[2].value ? files[3].value - files[2].value : 0;
    int64_t held = use->value - files[0].value - (files[1].value < mapped ? files[1].value : mapped);
    if (held <= r->over)
        return;
    r->held = held;
    r->at_ns = now_ns(CLOCK_MONOTONIC);
    r->wall_ns = now_ns(CLOCK_REALTIME);
    r->fired = 1;
    *(volatile int64_t *)r->ahead_at = r->at_ns;
    *(volatile int64_t *)r->ahead_wall = r->wall_ns;
    __atomic_store_n(r->ahead_length, r->length, __ATOMIC_RELEASE);
    *(volatile int64_t *)r->deadline = r->at_ns + r->grace_ns;
    *(volatile int64_t *)r->slow = 0;
    __atomic_store_n(r->directive, ((*r->directive >> 8) + 1) << 8 | r->code, __ATOMIC_RELEASE);
}

/* What vigil.py holds its own structures against: a library that was built from another version of this file is not used. */
const int32_t brim_vigil_layout[] = {3, sizeof(number), sizeof(source), sizeof(vigil), sizeof(request)};

/* Poll until one number leaves its band, a descriptor of the epoll is ready (or a signal came), the time is over, or the rows are full. A poll at which all is well is a row. */
int brim_vigil_keep(vigil *v) {
    struct epoll_event event;
    v->filled = 0;
    v->moved = -1;
    for (;;) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        int64_t left = v->until_ns - now;
        if (left <= 0)
            return DUE;
        if (v->filled == v->room)
            return FULL;
        left = left < v->poll_ns ? left : v->poll_ns;
        if (epoll_wait(v->epoll, &event, 1, (int)((left + 999999) / 1000000)) != 0) {
            make(v, v->request);
            return WOKEN;
        }
        now = now_ns(CLOCK_MONOTONIC);
        if (v->beat)
            *(volatile int64_t *)v->beat = now;
        v->polls++;
        for (int32_t at = 0; at < v->sources; at++)
            if (v->polls % v->source[at].every == 0 && ask(v, v->source + at)) {
                v->moved = at;
                make(v, v->request);
                return MOVED;
            }
        int64_t *row = v->rows + (int64_t)v->filled++ * (v->kept + 2);
        *row++ = now;
        *row++ = now_ns(CLOCK_REALTIME);
        for (int32_t at = 0; at < v->kept; at++)
            *row++ = v->number[at].value;
    }
}

/* What a file system has for us, in bytes: a call for a source. */
int brim_vigil_disk(const char *path, int64_t *free_bytes, intptr_t a, intptr_t b) {
    struct statvfs there;
    (void)a, (void)b;
    if (statvfs(path, &there) != 0)
        return 1;
    *free_bytes = (int64_t)there.f_bavail * (int64_t)there.f_frsize;
    return 0;
}

/* The pid of a child of ours that has changed so (WEXITED: it ended; WSTOPPED: it stands still) and was not waited for yet, 0 for none: a call for a source. */
int brim_vigil_child(idtype_t kind, id_t of, int32_t *pid, int how) {
    siginfo_t found;
    found.si_pid = 0;
    *pid = waitid(kind, of, &found, how | WNOHANG | WNOWAIT) == 0 ? found.si_pid : 0;
    return 0;
}

/* Functions of a driver that are not of the form above: calls for a source. */

/* One that is told how many rows there is room for in the word in which it says how many there are; the rows begin at the eighth byte. */
int brim_vigil_rows(int (*ask)(intptr_t, int32_t *, void *), intptr_t of, int32_t *count, int32_t room) {
    *count = room;
    return ask(of, count, count + 2);
}

/* One whose answer is a return code, and all is well while it is this one; what it fills begins at the eighth byte. It is not given time to wait. */
int brim_vigil_code(int (*ask)(intptr_t, void *, uint32_t), intptr_t of, int32_t *code, int32_t well) {
    *code = ask(of, code + 2, 0);
    return *code != well;
}

/* A job may cut its control page short; whoever touches what is no longer there gets SIGBUS, and that must not be the guard's end. In its place comes a page of zeros, on
   which nobody says anything any more. */
static char *guarded;
static size_t guarded_size;
static volatile int32_t guarded_lost;
static struct sigaction before;

static void on_sigbus(int number, siginfo_t *found, void *context) {
    char *at = found->si_addr;
    (void)number, (void)context;
    if (guarded && at >= guarded && at < guarded + guarded_size &&
        mmap(guarded, guarded_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        guarded_lost = 1;
    else
        sigaction(SIGBUS, &before, 0); /* not ours: it happens again, and is what it was */
}

/* Guard the pages from here on, and no others; a null place guards nothing. 0 where that is so from now on. */
int brim_vigil_guard(char *place, size_t size) {
    struct sigaction ours = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    if (guarded && sigaction(SIGBUS, &before, 0) != 0)
        return 1;
    guarded = 0;
    guarded_lost = 0;
    if (!place)
        return 0;
    if (sigaction(SIGBUS, &ours, &before) != 0)
        return 1;
    guarded_size = size;
    guarded = place;
    return 0;
}

int brim_vigil_lost(void) { return guarded_lost; }
