// A management library as a very old driver has it: one GPU, and few functions. Built by TestOldLibrary.
#include <string.h>

typedef int ret;
typedef void *device;
typedef struct { char legacy[16]; unsigned domain, bus, dev, id, sub; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;

static int gpu;

ret nvmlInit(void) { return 0; }
ret nvmlShutdown(void) { return 0; }
ret nvmlSystemGetDriverVersion(char *v, unsigned n) { strncpy(v, "331.62", n); return 0; }
ret nvmlDeviceGetCount(unsigned *n) { *n = 1; return 0; }
ret nvmlDeviceGetHandleByIndex(unsigned i, device *d) { *d = &gpu; return i == 0 ? 0 : 2; }
ret nvmlDeviceGetUUID(device d, char *v, unsigned n) { strncpy(v, "GPU-11111111-2222-3333-4444-555555555555", n); return 0; }
ret nvmlDeviceGetName(device d, char *v, unsigned n) { strncpy(v, "Tesla K20", n); return 0; }
ret nvmlDeviceGetMinorNumber(device d, unsigned *n) { *n = 3; return 0; }
ret nvmlDeviceGetPciInfo_v3(device d, pci *p) { memset(p, 0, sizeof *p); strcpy(p->bus_id, "00000000:05:00.0"); return 0; }
ret nvmlDeviceGetMemoryInfo(device d, memory *m) { m->total = 5ull << 30; m->used = 1 << 20; m->free = m->total - m->used; return 0; }
ret nvmlDeviceGetUtilizationRates(device d, utilization *u) { u->gpu = 42; u->memory = 7; return 0; }
ret nvmlDeviceGetTemperature(device d, int sensor, unsigned *t) { *t = 55; return 0; }
ret nvmlDeviceGetPowerUsage(device d, unsigned *p) { return 3; }
