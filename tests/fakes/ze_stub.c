/* A stand-in for libze_loader.so.1 (Level Zero sysman): one board with two memory modules and three sensors, one integrated GPU with none. Built at test time.
 * ZE_STUB=denied: memory answers insufficient permissions; none: no driver; lost, unsupported: memory answers so; hang, crash: in the listing of devices. Structures: zes_api.h 1.x. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int32_t stype; void *next; int32_t core_stype; void *core_next; int32_t type; uint32_t vendor, device, flags, sub, clock; uint64_t most;
  uint32_t contexts, priority, threads, simd, eus, subslices, slices; uint64_t timer; uint32_t bits, kernel_bits; uint8_t uuid[16]; char name[256];
  uint32_t subdevices; char serial[64], board[64], brand[64], model[64], maker[64], driver[64]; } Properties;
typedef struct { int32_t stype; void *next; uint32_t domain, bus, device, function; int32_t gen, width; int64_t bandwidth; uint8_t have[3]; } Pci;
typedef struct { int32_t stype; void *next; int32_t health; uint64_t free, size; } State;
typedef struct { int32_t stype; void *next; int32_t type; uint32_t on, sub; double most; } Temp;

static int is(const char *word) { const char *v = getenv("ZE_STUB"); return v && !strcmp(v, word); }
static uint32_t list(uint32_t *count, void **out, uintptr_t first, uint32_t many) {
  if (out) for (uint32_t i = 0; i < many && i < *count; i++) out[i] = (void *)(first + i);
  *count = many;
  return 0;
}
uint32_t zesInit(uint32_t flags) { (void)flags; return is("none") ? 0x78000001 : 0; }
uint32_t zesDriverGet(uint32_t *n, void **h) { return list(n, h, 1, 1); }
uint32_t zesDeviceGet(void *d, uint32_t *n, void **h) { (void)d; if (is("hang")) sleep(30); if (is("crash")) abort(); return list(n, h, 10, 2); }
uint32_t zesDeviceGetProperties(void *d, Properties *p) {
  if (p->stype != 1) return 0x78000004;
  strcpy(p->model, (uintptr_t)d == 10 ? "Intel(R) Arc(TM) B580 Graphics" : "");
  strcpy(p->name, "Intel(R) Graphics");
  p->uuid[0] = 0x86; p->uuid[15] = (uint8_t)(uintptr_t)d;
  return 0;
}
uint32_t zesDevicePciGetProperties(void *d, Pci *p) { p->domain = 0; p->bus = (uintptr_t)d == 10 ? 3 : 0; p->device = (uintptr_t)d == 10 ? 0 : 2; p->function = 0; return 0; }
uint32_t zesDeviceEnumMemoryModules(void *d, uint32_t *n, void **h) { return list(n, h, 20, (uintptr_t)d == 10 ? 2 : 0); }
uint32_t zesMemoryGetState(void *m, State *s) {
  if (is("denied")) return 0x70010000;
  if (is("lost")) return 0x70000001;
  if (is("unsupported")) return 0x78000003;
  if (s->stype != 0x1e) return 0x78000004;
  s->size = 6ull << 30; s->free = (uintptr_t)m == 20 ? 2ull << 30 : 1ull << 30;
  return 0;
}
uint32_t zesDeviceEnumTemperatureSensors(void *d, uint32_t *n, void **h) { return list(n, h, 30, (uintptr_t)d == 10 ? 3 : 0); }
uint32_t zesTemperatureGetProperties(void *t, Temp *p) { p->type = (uintptr_t)t == 30 ? 0 : (uintptr_t)t == 31 ? 1 : 2; return 0; }
uint32_t zesTemperatureGetState(void *t, double *v) { *v = (uintptr_t)t == 30 ? 0.0 : (uintptr_t)t == 31 ? 66.5 : 74.0; return 0; }
