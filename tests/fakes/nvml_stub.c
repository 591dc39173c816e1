/* A stand-in for libnvidia-ml.so.1 that plays back a text file; built at test time, driven while a program runs.
 *
 * NVML_STUB names the file; it is looked at again at each call (stat; with NVML_STUB_TTL_MS at most that often) and parsed again when it changed (rename a new one).
 * One `key value` a line. For the whole library: driver, nvml, cuda, count, delay.FN (ms), err.FN (NVML code), crash.FN (1 = abort).
 * For card N: N.name, N.uuid, N.pci, N.total, N.used, N.reserved, N.temp, N.mem_temp, N.slowdown, N.shutdown, N.gpu_max, N.power (mW), N.limit, N.enforced,
 * N.min, N.max, N.default, N.util, N.reasons, N.fan, N.sm_clock, N.mem_clock, N.ecc, N.remap_pending, N.remap_failed, N.mig, N.persistence, N.cc (86 = 8.6),
 * N.cores, N.max_clock, N.proc "PID BYTES" (repeatable; BYTES na = all ones), N.xid (delivered once per change of the number's count in N.xid_count),
 * N.err.FN, N.delay.FN, N.crash.FN, N.lost 1 (every call answers 15). A MIG slice is card mK with mK.parent N.
 * A function named in `absent` lines answers FUNCTION_NOT_FOUND (13), as the binding would say of a symbol that is not there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef unsigned int u32;

#define FUNCTIONS(X) \
  X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlSystemGetDriverVersion) X(nvmlSystemGetNVMLVersion) X(nvmlSystemGetCudaDriverVersion_v2) \
  X(nvmlSystemGetCudaDriverVersion) X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByPciBusId_v2) \
  X(nvmlDeviceGetHandleByUUID) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) X(nvmlDeviceGetIndex) X(nvmlDeviceGetMinorNumber) \
  X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetTemperature) X(nvmlDeviceGetTemperatureV) \
  X(nvmlDeviceGetTemperatureThreshold) X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetEnforcedPowerLimit) \
  X(nvmlDeviceGetPowerManagementLimit) X(nvmlDeviceGetPowerManagementLimitConstraints) X(nvmlDeviceGetPowerManagementDefaultLimit) \
  X(nvmlDeviceSetPowerManagementLimit) X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetCurrentClocksEventReasons) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetFanSpeed) \
  X(nvmlDeviceGetComputeRunningProcesses_v3) X(nvmlDeviceGetGraphicsRunningProcesses_v3) X(nvmlDeviceGetTotalEccErrors) X(nvmlDeviceGetRemappedRows) \
  X(nvmlDeviceGetMigMode) X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
  X(nvmlDeviceIsMigDeviceHandle) X(nvmlDeviceGetPersistenceMode) X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetNumGpuCores) \
  X(nvmlEventSetCreate) X(nvmlEventSetWait_v2) X(nvmlEventSetFree) X(nvmlDeviceRegisterEvents) X(nvmlDeviceGetSupportedEventTypes) \
  X(nvmlDeviceGetEncoderUtilization) X(nvmlDeviceGetDecoderUtilization) X(nvmlDeviceGetComputeMode) X(nvmlDeviceGetPerformanceState) \
  X(nvmlDeviceGetDisplayActive) X(nvmlDeviceGetDisplayMode)

#define ID(f) F_##f,
enum { FUNCTIONS(ID) F_COUNT };
#define NAME(f) #f,
static const char *const NAMES[] = {FUNCTIONS(NAME)};

#define NUMBERS(X) \
  X(total) X(used) X(reserved) X(temp) X(mem_temp) X(slowdown) X(shutdown) X(gpu_max) X(power) X(limit) X(enforced) X(min) X(max) X(default) X(util) \
  X(reasons) X(fan) X(sm_clock) X(mem_clock) X(ecc) X(remap_pending) X(remap_failed) X(mig) X(persistence) X(cc) X(cores) X(max_clock) X(xid) \
  X(xid_count) X(lost) X(parent)
#define KEY(k) K_##k,
enum { NUMBERS(KEY) K_COUNT };
#define KEYNAME(k) #k,
static const char *const KEYS[] = {NUMBERS(KEYNAME)};

#define CARDS 16
#define PROCS 64
typedef struct {
  char name[96], uuid[96], pci[32];
  u64 number[K_COUNT];
  char known[K_COUNT];
  int err[F_COUNT], delay[F_COUNT], crash[F_COUNT];
  int procs;
  struct { u32 pid; u64 bytes; } proc[PROCS];
} Card;

static Card card[2 * CARDS]; /* the second half are MIG slices */
static Card whole;           /* err, delay and crash for calls that name no card */
static char driver[80], nvml[80];
static int cuda, count, absent[F_COUNT];
static u64 delivered[2 * CARDS];
static struct stat seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int find(const char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

static void switches(Card *c, char *key, const char *value) {
  char *dot = strchr(key, '.');
  int f = dot ? find(NAMES, F_COUNT, dot + 1) : -1;
  if (f < 0) return;
  if (!strncmp(key, "err.", 4)) c->err[f] = atoi(value);
  if (!strncmp(key, "delay.", 6)) c->delay[f] = atoi(value);
  if (!strncmp(key, "crash.", 6)) c->crash[f] = atoi(value);
}

static void line(char *key, char *value) {
  Card *c = NULL;
  if (!strcmp(key, "driver")) snprintf(driver, sizeof driver, "%s", value);
  else if (!strcmp(key, "nvml")) snprintf(nvml, sizeof nvml, "%s", value);
  else if (!strcmp(key, "cuda")) cuda = atoi(value);
  else if (!strcmp(key, "count")) count = atoi(value);
  else if (!strcmp(key, "absent")) { int f = find(NAMES, F_COUNT, value); if (f >= 0) absent[f] = 1; }
  else if (key[0] >= '0' && key[0] <= '9') { c = &card[atoi(key) % CARDS]; key = strchr(key, '.') + 1; }
  else if (key[0] == 'm' && key[1] >= '0' && key[1] <= '9') { c = &card[CARDS + atoi(key + 1) % CARDS]; key = strchr(key, '.') + 1; }
  else { switches(&whole, key, value); }
  if (!c) return;
  int k = find(KEYS, K_COUNT, key);
  if (k >= 0) { c->number[k] = strtoull(value, NULL, 0); c->known[k] = 1; }
  else if (!strcmp(key, "name")) snprintf(c->name, sizeof c->name, "%s", value);
  else if (!strcmp(key, "uuid")) snprintf(c->uuid, sizeof c->uuid, "%s", value);
  else if (!strcmp(key, "pci")) snprintf(c->pci, sizeof c->pci, "%s", value);
  else if (!strcmp(key, "proc") && c->procs < PROCS) {
    char *space = strchr(value, ' ');
    c->proc[c->procs].pid = (u32)strtoul(value, NULL, 10);
    c->proc[c->procs++].bytes = space && strcmp(space + 1, "na") ? strtoull(space + 1, NULL, 10) : ~0ull;
  } else switches(c, key, value);
}

static void reload(void) {
  const char *path = getenv("NVML_STUB");
  static long ttl_ms = -1, looked_ms;
  if (ttl_ms < 0) {
    const char *text = getenv("NVML_STUB_TTL_MS");
    ttl_ms = text ? atol(text) : 0;
  }
  if (ttl_ms) {
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    long now_ms = clock.tv_sec * 1000 + clock.tv_nsec / 1000000;
    if (looked_ms && now_ms - looked_ms < ttl_ms) return;
    looked_ms = now_ms;
  }
  struct stat now;
  if (!path || stat(path, &now)) return;
  if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  seen = now;
  memset(card, 0, sizeof card); memset(&whole, 0, sizeof whole); memset(absent, 0, sizeof absent);
  char buffer[512];
  while (fgets(buffer, sizeof buffer, file)) {
    buffer[strcspn(buffer, "\n")] = 0;
    char *space = strchr(buffer, ' ');
    if (!space || buffer[0] == '#') continue;
    *space = 0;
    line(buffer, space + 1);
  }
  fclose(file);
}

/* What is due before any function answers: the switches of the card and of the library, then 0. */
static int enter(int f, Card *c) {
  pthread_mutex_lock(&lock);
  reload();
  int delay = whole.delay[f] + (c ? c->delay[f] : 0);
  int crash = whole.crash[f] || (c && c->crash[f]);
  int err = absent[f] ? 13 : whole.err[f] ? whole.err[f] : c && c->number[K_lost] ? 15 : c ? c->err[f] : 0;
  pthread_mutex_unlock(&lock);
  if (delay) usleep((useconds_t)delay * 1000);
  if (crash) abort();
  return err;
}
#define ENTER(f, c) do { int e_ = enter(F_##f, (Card *)(c)); if (e_) return e_; } while (0)
#define HAVE(c, k) do { if (!((Card *)(c))->known[K_##k]) return 3; } while (0)
#define NUM(c, k) (((Card *)(c))->number[K_##k])

int nvmlInitWithFlags(u32 flags) { (void)flags; ENTER(nvmlInitWithFlags, NULL); return 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ENTER(nvmlShutdown, NULL); return 0; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { ENTER(nvmlSystemGetDriverVersion, NULL); snprintf(s, n, "%s", driver); return 0; }
int nvmlSystemGetNVMLVersion(char *s, u32 n) { ENTER(nvmlSystemGetNVMLVersion, NULL); snprintf(s, n, "%s", nvml); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { ENTER(nvmlSystemGetCudaDriverVersion_v2, NULL); *v = cuda; return 0; }
int nvmlSystemGetCudaDriverVersion(int *v) { ENTER(nvmlSystemGetCudaDriverVersion, NULL); *v = cuda; return 0; }
int nvmlDeviceGetCount_v2(u32 *n) { ENTER(nvmlDeviceGetCount_v2, NULL); *n = (u32)count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **h) {
  if (i < CARDS) ENTER(nvmlDeviceGetHandleByIndex_v2, &card[i]);
  if ((int)i >= count) return 2;
  *h = &card[i];
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **h) {
  ENTER(nvmlDeviceGetHandleByPciBusId_v2, NULL);
  for (int i = 0; i < count; i++)
    if (!strcasecmp(id, card[i].pci) || (strlen(card[i].pci) > 4 && !strcasecmp(id, card[i].pci + 4))) { *h = &card[i]; return 0; }
  return 6;
}
int nvmlDeviceGetHandleByUUID(const char *id, void **h) {
  ENTER(nvmlDeviceGetHandleByUUID, NULL);
  for (int i = 0; i < 2 * CARDS; i++)
    if (card[i].uuid[0] && !strcmp(id, card[i].uuid)) { *h = &card[i]; return 0; }
  return 6;
}
int nvmlDeviceGetName(void *c, char *s, u32 n) { ENTER(nvmlDeviceGetName, c); snprintf(s, n, "%s", ((Card *)c)->name); return 0; }
int nvmlDeviceGetUUID(void *c, char *s, u32 n) { ENTER(nvmlDeviceGetUUID, c); snprintf(s, n, "%s", ((Card *)c)->uuid); return 0; }
int nvmlDeviceGetIndex(void *c, u32 *i) { ENTER(nvmlDeviceGetIndex, c); *i = (u32)(((Card *)c - card) % CARDS); return 0; }
int nvmlDeviceGetMinorNumber(void *c, u32 *i) { ENTER(nvmlDeviceGetMinorNumber, c); *i = (u32)(((Card *)c - card) % CARDS); return 0; }
typedef struct { char old[16]; u32 domain, bus, device, id, sub; char busId[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *c, Pci *p) {
  ENTER(nvmlDeviceGetPciInfo_v3, c);
  memset(p, 0, sizeof *p);
  snprintf(p->busId, sizeof p->busId, "%s", ((Card *)c)->pci);
  sscanf(p->busId, "%x:%x:%x", &p->domain, &p->bus, &p->device);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *c, u64 *m) {
  ENTER(nvmlDeviceGetMemoryInfo, c); HAVE(c, total);
  m[0] = NUM(c, total); m[1] = NUM(c, total) - NUM(c, used) - NUM(c, reserved); m[2] = NUM(c, used) + NUM(c, reserved);
  return 0;
}
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(void *c, Memory2 *m) {
  ENTER(nvmlDeviceGetMemoryInfo_v2, c); HAVE(c, total);
  if (m->version != 0x02000028) return 25;
  m->total = NUM(c, total); m->reserved = NUM(c, reserved); m->used = NUM(c, used); m->free = m->total - m->used - m->reserved;
  return 0;
}
int nvmlDeviceGetTemperature(void *c, int sensor, u32 *v) { (void)sensor; ENTER(nvmlDeviceGetTemperature, c); HAVE(c, temp); *v = (u32)NUM(c, temp); return 0; }
typedef struct { u32 version; int sensor, temperature; } TemperatureV;
int nvmlDeviceGetTemperatureV(void *c, TemperatureV *t) { ENTER(nvmlDeviceGetTemperatureV, c); HAVE(c, temp); t->temperature = (int)NUM(c, temp); return 0; }
int nvmlDeviceGetTemperatureThreshold(void *c, int which, u32 *v) {
  ENTER(nvmlDeviceGetTemperatureThreshold, c);
  if (which == 0) { HAVE(c, shutdown); *v = (u32)NUM(c, shutdown); return 0; }
  if (which == 1) { HAVE(c, slowdown); *v = (u32)NUM(c, slowdown); return 0; }
  if (which == 3) { HAVE(c, gpu_max); *v = (u32)NUM(c, gpu_max); return 0; }
  return 3;
}
typedef struct { u32 field, scope; long long stamp, latency; u32 type, result; u64 value; } Field;
int nvmlDeviceGetFieldValues(void *c, int n, Field *f) {
  ENTER(nvmlDeviceGetFieldValues, c);
  for (int i = 0; i < n; i++) {
    f[i].result = f[i].field == 82 && ((Card *)c)->known[K_mem_temp] ? 0 : 3;
    f[i].type = 1;
    f[i].value = f[i].result ? 0 : NUM(c, mem_temp);
  }
  return 0;
}
#define GETTER(fn, key) int fn(void *c, u32 *v) { ENTER(fn, c); HAVE(c, key); *v = (u32)NUM(c, key); return 0; }
GETTER(nvmlDeviceGetPowerUsage, power)
GETTER(nvmlDeviceGetEnforcedPowerLimit, enforced)
GETTER(nvmlDeviceGetPowerManagementLimit, limit)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, default)
GETTER(nvmlDeviceGetFanSpeed, fan)
GETTER(nvmlDeviceGetPersistenceMode, persistence)
GETTER(nvmlDeviceGetNumGpuCores, cores)
int nvmlDeviceGetPowerManagementLimitConstraints(void *c, u32 *low, u32 *high) {
  ENTER(nvmlDeviceGetPowerManagementLimitConstraints, c); HAVE(c, min);
  *low = (u32)NUM(c, min); *high = (u32)NUM(c, max);
  return 0;
}
int nvmlDeviceSetPowerManagementLimit(void *c, u32 v) {
  ENTER(nvmlDeviceSetPowerManagementLimit, c);
  if (v < NUM(c, min) || v > NUM(c, max)) return 2;
  NUM(c, limit) = v; NUM(c, enforced) = v;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *c, u32 *u) { ENTER(nvmlDeviceGetUtilizationRates, c); HAVE(c, util); u[0] = (u32)NUM(c, util); u[1] = 0; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *c, u64 *r) { ENTER(nvmlDeviceGetCurrentClocksEventReasons, c); HAVE(c, reasons); *r = NUM(c, reasons); return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *c, u64 *r) { ENTER(nvmlDeviceGetCurrentClocksThrottleReasons, c); HAVE(c, reasons); *r = NUM(c, reasons); return 0; }
int nvmlDeviceGetClockInfo(void *c, int which, u32 *v) {
  ENTER(nvmlDeviceGetClockInfo, c);
  if (which == 2) { HAVE(c, mem_clock); *v = (u32)NUM(c, mem_clock); return 0; }
  HAVE(c, sm_clock); *v = (u32)NUM(c, sm_clock);
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void *c, int which, u32 *v) { (void)which; ENTER(nvmlDeviceGetMaxClockInfo, c); HAVE(c, max_clock); *v = (u32)NUM(c, max_clock); return 0; }
typedef struct { u32 pid; u64 bytes; u32 gi, ci; } Proc;
static int processes(Card *c, u32 *n, Proc *p, int many) {
  u32 room = *n;
  *n = (u32)many;
  if (!many) return 0;
  if (!p || room < (u32)many) return 7;
  for (int i = 0; i < many; i++) { p[i].pid = c->proc[i].pid; p[i].bytes = c->proc[i].bytes; p[i].gi = p[i].ci = ~0u; }
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *c, u32 *n, Proc *p) { ENTER(nvmlDeviceGetComputeRunningProcesses_v3, c); return processes(c, n, p, ((Card *)c)->procs); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *c, u32 *n, Proc *p) { ENTER(nvmlDeviceGetGraphicsRunningProcesses_v3, c); return processes(c, n, p, 0); }
int nvmlDeviceGetTotalEccErrors(void *c, int type, int counter, u64 *v) {
  (void)counter; ENTER(nvmlDeviceGetTotalEccErrors, c); HAVE(c, ecc);
  *v = type == 1 ? NUM(c, ecc) : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(void *c, u32 *a, u32 *b, u32 *pending, u32 *failed) {
  ENTER(nvmlDeviceGetRemappedRows, c); HAVE(c, remap_pending);
  *a = *b = 0; *pending = (u32)NUM(c, remap_pending); *failed = (u32)NUM(c, remap_failed);
  return 0;
}
int nvmlDeviceGetMigMode(void *c, u32 *now, u32 *pending) { ENTER(nvmlDeviceGetMigMode, c); HAVE(c, mig); *now = *pending = (u32)NUM(c, mig); return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *c, u32 *n) { ENTER(nvmlDeviceGetMaxMigDeviceCount, c); *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *c, u32 index, void **h) {
  ENTER(nvmlDeviceGetMigDeviceHandleByIndex, c);
  u32 at = 0;
  for (int i = CARDS; i < 2 * CARDS; i++)
    if (card[i].known[K_parent] && card[i].number[K_parent] == (u64)((Card *)c - card) && at++ == index) { *h = &card[i]; return 0; }
  return 6;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *c, void **h) {
  ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, c); HAVE(c, parent);
  *h = &card[NUM(c, parent) % CARDS];
  return 0;
}
int nvmlDeviceIsMigDeviceHandle(void *c, u32 *v) { ENTER(nvmlDeviceIsMigDeviceHandle, c); *v = (Card *)c >= card + CARDS; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *c, int *major, int *minor) {
  ENTER(nvmlDeviceGetCudaComputeCapability, c); HAVE(c, cc);
  *major = (int)NUM(c, cc) / 10; *minor = (int)NUM(c, cc) % 10;
  return 0;
}
int nvmlEventSetCreate(void **set) { ENTER(nvmlEventSetCreate, NULL); *set = &whole; return 0; }
int nvmlEventSetFree(void *set) { (void)set; ENTER(nvmlEventSetFree, NULL); return 0; }
int nvmlDeviceGetSupportedEventTypes(void *c, u64 *types) { ENTER(nvmlDeviceGetSupportedEventTypes, c); *types = 0x1f; return 0; }
int nvmlDeviceRegisterEvents(void *c, u64 types, void *set) { (void)types; (void)set; ENTER(nvmlDeviceRegisterEvents, c); return 0; }
typedef struct { void *device; u64 type, data; u32 gi, ci; } Event;
int nvmlEventSetWait_v2(void *set, Event *e, u32 ms) {
  (void)set; ENTER(nvmlEventSetWait_v2, NULL);
  for (int i = 0; i < count; i++)
    if (card[i].number[K_xid_count] > delivered[i]) {
      delivered[i]++;
      memset(e, 0, sizeof *e);
      e->device = &card[i]; e->type = 8; e->data = card[i].number[K_xid];
      return 0;
    }
  if (ms) usleep((useconds_t)ms * 1000);
  return 10;
}
int nvmlDeviceGetEncoderUtilization(void *c, u32 *u, u32 *us) { ENTER(nvmlDeviceGetEncoderUtilization, c); *u = 0; *us = 167000; return 0; }
int nvmlDeviceGetDecoderUtilization(void *c, u32 *u, u32 *us) { ENTER(nvmlDeviceGetDecoderUtilization, c); *u = 0; *us = 167000; return 0; }
int nvmlDeviceGetComputeMode(void *c, u32 *v) { ENTER(nvmlDeviceGetComputeMode, c); *v = 0; return 0; }
int nvmlDeviceGetPerformanceState(void *c, u32 *v) { ENTER(nvmlDeviceGetPerformanceState, c); *v = 0; return 0; }
int nvmlDeviceGetDisplayActive(void *c, u32 *v) { ENTER(nvmlDeviceGetDisplayActive, c); *v = 0; return 0; }
int nvmlDeviceGetDisplayMode(void *c, u32 *v) { ENTER(nvmlDeviceGetDisplayMode, c); *v = 0; return 0; }
