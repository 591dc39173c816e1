/* A job that grows at a set rate and needs time to checkpoint, and goes on growing while it does.
 *
 * hog MODE BASE_MIB RATE_MIB_S CAP_MIB SAVE_MS FOLDER
 *   MODE  coop   listens on the control page named by BRIM_CONTROL, and saves when asked to checkpoint or stop
 *         plain  saves when it gets SIGTERM
 *         flat   loads BASE_MIB as fast as it can, then stays flat for ten seconds and ends
 * It writes FOLDER/ready and waits for FOLDER/go (the caller frees warm pages in between), touches BASE_MIB as fast as it can, then grows. FOLDER/log gets one line
 * for each event: name, monotonic ns, MiB touched. A complete checkpoint is FOLDER/checkpoint, written aside and renamed.
 * The page's layout is that of src/brim/control.py: a second reader of it, in another language. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define STEP_MIB 4UL
enum { W_DIRECTIVE = 1, W_JOB_PID = 512, W_BEAT, W_STEP, W_TOKENS, W_PHASE, W_SEEN, W_ANSWERED, CK_SEQ = 528, CK_STEP, CK_STARTED, CK_ENDED, CK_COMPLETE, CK_REQUEST, CK_LENGTH, CK_SUM };

static volatile _Atomic uint64_t *page;
static char *heap, folder[4096];
static volatile sig_atomic_t told;
static _Atomic unsigned long touched, rate, cap;
static FILE *events;

static uint64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec; }
static void on_term(int n) { (void)n; if (!told) told = 1; }
static void note(const char *what) { fprintf(events, "%s %llu %lu\n", what, (unsigned long long)now_ns(), (unsigned long)touched); fflush(events); }

static uint32_t crc(uint32_t sum, const unsigned char *data, size_t count) {
    sum = ~sum;
    while (count--) { sum ^= *data++; for (int k = 0; k < 8; k++) sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1; }
    return ~sum;
}
static void touch(unsigned long mib) {
    for (unsigned long i = 0; i < mib && touched < cap; i++) { memset(heap + touched * MIB, 1, MIB); touched++; }
}
static void *grow(void *unused) {
    (void)unused;
    uint64_t start = now_ns(), base = touched;
    while (touched < cap) {
        unsigned long due = base + (unsigned long)((now_ns() - start) / 1e9 * rate);
        if (due > touched) touch(due - touched > STEP_MIB ? STEP_MIB : due - touched);
        else usleep(500);
    }
    return NULL;
}
static void publish(uint64_t request, uint64_t began) {
    char path[4200]; snprintf(path, sizeof path, "%s/checkpoint", folder);
    uint64_t seq = page[CK_SEQ] | 1, fields[6] = {page[W_STEP], began, now_ns(), 1, request, strlen(path)}, words[7];
    page[CK_SEQ] = seq;
    memcpy((char *)page + 4096 + 512, path, fields[5]);
    for (int i = 0; i < 6; i++) page[CK_STEP + i] = fields[i];
    words[0] = seq + 1; memcpy(words + 1, fields, sizeof fields);
    page[CK_SUM] = crc(crc(0, (unsigned char *)words, sizeof words), (unsigned char *)path, fields[5]);
    page[CK_SEQ] = seq + 1;
    page[W_ANSWERED] = request;
}
static void save(unsigned long ms) {
    char aside[4200], path[4200];
    uint64_t end = now_ns() + ms * 1000000u;
    while (now_ns() < end) usleep(1000);
    snprintf(aside, sizeof aside, "%s/checkpoint.part", folder); snprintf(path, sizeof path, "%s/checkpoint", folder);
    FILE *file = fopen(aside, "w"); fprintf(file, "complete\n"); fclose(file); rename(aside, path);
}
int main(int argc, char **argv) {
    if (argc < 7) return 2;
    int coop = !strcmp(argv[1], "coop"), flat = !strcmp(argv[1], "flat");
    unsigned long base = strtoul(argv[2], 0, 10), ms = strtoul(argv[5], 0, 10); rate = strtoul(argv[3], 0, 10); cap = strtoul(argv[4], 0, 10);
    snprintf(folder, sizeof folder, "%s", argv[6]);
    struct rlimit most = {cap * MIB + 512 * MIB, cap * MIB + 512 * MIB}; setrlimit(RLIMIT_AS, &most); /* whatever goes wrong, no more than this */
    char path[4200]; snprintf(path, sizeof path, "%s/log", folder); events = fopen(path, "w");
    const char *control = getenv("BRIM_CONTROL");
    if (control && (coop || flat)) {
        int fd = open(control, O_RDWR); void *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (fd < 0 || map == MAP_FAILED) return 3;
        page = map; page[W_JOB_PID] = getpid(); memcpy((void *)&page[W_PHASE], "loading\0", 8); page[W_BEAT] = now_ns();
    }
    struct sigaction act = {.sa_handler = on_term}; sigaction(SIGTERM, &act, NULL);
    heap = mmap(NULL, cap * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise(heap, cap * MIB, MADV_HUGEPAGE);
    snprintf(path, sizeof path, "%s/ready", folder); fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/go", folder); while (access(path, F_OK)) usleep(1000);
    note("start"); touch(base); note("loaded");
    if (page) memcpy((void *)&page[W_PHASE], "training", 8);
    if (flat) { for (int i = 0; i < 1000 && !told && !(page && (page[W_DIRECTIVE] & 255) >= 3); i++) { if (page) { page[W_STEP] = i + 1; page[W_BEAT] = now_ns(); } usleep(10000); } note(told ? "told" : page && (page[W_DIRECTIVE] & 255) >= 3 ? "told" : "end"); return 0; }
    if (argc > 7) { usleep(1000 * strtoul(argv[7], 0, 10)); note("grows"); } /* it ran for a while first */
    pthread_t thread; pthread_create(&thread, NULL, grow, NULL);
    uint64_t done = 0;
    for (uint64_t step = 1;; step++) {
        usleep(2000); /* one step */
        if (!page) { if (told) { note("told"); save(ms); note("saved"); return 0; } continue; }
        page[W_BEAT] = now_ns(); page[W_STEP] = step;
        uint64_t word = page[W_DIRECTIVE], code = word & 255, number = word >> 8;
        if ((code >= 3 && number != done) || told) {
            uint64_t began = now_ns(); note(code == 4 ? "told" : "asked"); page[W_SEEN] = number; save(ms); publish(number, began); note("saved"); done = number;
            if (code == 4 || told) return 0;
        }
    }
}
