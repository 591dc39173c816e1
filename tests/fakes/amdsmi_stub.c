/* A stand-in for libamd_smi.so that plays back a text file; built at test time, together with one "not supported" for every other symbol that the binding asks for.
 *
 * AMDSMI_STUB names the file, read at each call. One `key value` a line: count, err.FN (amdsmi_status_t), delay.FN (ms), crash.FN (1 = abort); for card N:
 * N.bus, N.name (a word; _ is a blank), N.uuid, N.vram, N.vram_used, N.gtt, N.gtt_used, N.edge, N.hotspot, N.mem, N.ecc, N.proc "PID BYTES" (repeatable). A value
 * that is not in the file is "not supported" (2). Structures: amdsmi.h of ROCm 7.0 (amdsmi_bdf_t, amdsmi_asic_info_t, amdsmi_proc_info_t, amdsmi_error_count_t).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef struct { char market_name[256]; u32 vendor_id; char vendor_name[256]; u32 subvendor_id; u64 device_id; u32 rev_id; char asic_serial[256]; u32 oam_id, units, pad; u64 gfx;
  u32 subsystem_id, reserved[21]; } Asic;
typedef struct { char name[256]; u32 pid, pad; u64 mem; u64 gfx, enc; u32 r1[12]; u64 gtt, cpu, vram; u32 r2[10]; char container[256]; u32 occupancy, r3[11]; } Proc;
typedef struct { u64 correctable, uncorrectable, deferred, reserved[5]; } Errors;

/* The rest of the n-th line that begins with the key, or 0. */
static int line(const char *key, int nth, char *out) {
  const char *path = getenv("AMDSMI_STUB");
  FILE *file = path ? fopen(path, "r") : 0;
  char row[512];
  size_t length = strlen(key);
  int found = 0;
  while (file && fgets(row, sizeof row, file))
    if (!strncmp(row, key, length) && row[length] == ' ' && nth-- == 0) {
      row[strcspn(row, "\n")] = 0;
      strcpy(out, row + length + 1);
      found = 1;
      break;
    }
  if (file) fclose(file);
  return found;
}
static int number(const char *key, u64 *value) {
  char text[512];
  if (!line(key, 0, text)) return 0;
  *value = strtoull(text, 0, 0);
  return 1;
}
static u32 begun(const char *function) {
  char key[128];
  u64 value;
  snprintf(key, sizeof key, "crash.%s", function);
  if (number(key, &value) && value) abort();
  snprintf(key, sizeof key, "delay.%s", function);
  if (number(key, &value)) usleep((useconds_t)value * 1000);
  snprintf(key, sizeof key, "err.%s", function);
  return number(key, &value) ? (u32)value : 0;
}
#define BEGIN { u32 code = begun(__func__); if (code) return code; }
static u32 cell(void *card, const char *field, u64 *value) {
  char key[64];
  snprintf(key, sizeof key, "%d.%s", (int)(uintptr_t)card - 1, field);
  return number(key, value) ? 0 : 2;
}
static u32 text(void *card, const char *field, int nth, char *out) {
  char key[64];
  snprintf(key, sizeof key, "%d.%s", (int)(uintptr_t)card - 1, field);
  return line(key, nth, out) ? 0 : 2;
}
u32 amdsmi_init(u64 flags) { (void)flags; BEGIN return 0; }
u32 amdsmi_shut_down(void) { BEGIN return 0; }
u32 amdsmi_get_socket_handles(u32 *count, void **out) {
  BEGIN
  u64 many = 0;
  number("count", &many);
  for (u64 at = 0; out && at < many && at < *count; at++) out[at] = (void *)(uintptr_t)(at + 1);
  *count = (u32)many;
  return 0;
}
u32 amdsmi_get_processor_handles(void *socket, u32 *count, void **out) {
  BEGIN
  if (out) out[0] = socket;
  *count = 1;
  return 0;
}
u32 amdsmi_get_gpu_device_bdf(void *card, u64 *bdf) {
  BEGIN
  u64 bus;
  u32 code = cell(card, "bus", &bus);
  *bdf = bus << 8;
  return code;
}
u32 amdsmi_get_gpu_asic_info(void *card, Asic *out) {
  BEGIN
  memset(out, 0, sizeof *out);
  char name[512];
  if (text(card, "name", 0, name)) return 0; /* a card without a marketing name: the binding says "N/A" */
  for (char *at = name; *at; at++) if (*at == '_') *at = ' ';
  snprintf(out->market_name, sizeof out->market_name, "%.255s", name);
  return 0;
}
u32 amdsmi_get_gpu_device_uuid(void *card, u32 *length, char *out) {
  BEGIN
  char name[512];
  u32 code = text(card, "uuid", 0, name);
  if (!code) snprintf(out, *length, "%s", name);
  return code;
}
u32 amdsmi_get_temp_metric(void *card, u32 sensor, u32 metric, int64_t *out) {
  BEGIN
  static const char *const fields[] = {"edge", "hotspot", "mem"};
  return sensor > 2 || metric ? 2 : cell(card, fields[sensor], (u64 *)out);
}
u32 amdsmi_get_gpu_memory_total(void *card, u32 kind, u64 *out) { BEGIN return kind == 0 ? cell(card, "vram", out) : kind == 2 ? cell(card, "gtt", out) : 2; }
u32 amdsmi_get_gpu_memory_usage(void *card, u32 kind, u64 *out) { BEGIN return kind == 0 ? cell(card, "vram_used", out) : kind == 2 ? cell(card, "gtt_used", out) : 2; }
u32 amdsmi_get_gpu_total_ecc_count(void *card, Errors *out) {
  BEGIN
  memset(out, 0, sizeof *out);
  return cell(card, "ecc", &out->uncorrectable);
}
u32 amdsmi_get_gpu_process_list(void *card, u32 *count, Proc *out) {
  BEGIN
  u32 many = 0;
  char row[512];
  while (many < *count && !text(card, "proc", (int)many, row)) {
    memset(&out[many], 0, sizeof out[many]);
    unsigned long long pid = 0, bytes = 0;
    sscanf(row, "%llu %llu", &pid, &bytes);
    out[many].pid = (u32)pid;
    out[many].vram = bytes;
    snprintf(out[many].name, sizeof out[many].name, "/opt/conda/bin/python3");
    many++;
  }
  *count = many;
  return 0;
}
