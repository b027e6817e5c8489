/* A stand-in for libnvidia-ml.so.1 with the functions that the product calls. Each call reads its values from the file that
 * NVML_STUB_FILE names: lines "key value". Keys: gpus, busy, watts, celsius, used, reasons, corrected, uncorrected;
 * memory_megahertz: the clock of the memory, which a device does not tell without it; lost 1: the device has fallen off the bus;
 * hang 1: the call does not return while the file says so. What is missing in it is 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, LOST = 15 };
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned gpu, memory; } utilization;

static long long value(const char *wanted) {
    const char *path = getenv("NVML_STUB_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char key[64];
    long long number, found = 0;
    if (!file) return 0;
    while (fscanf(file, "%63s %lld", key, &number) == 2)
        if (!strcmp(key, wanted)) found = number;
    fclose(file);
    return found;
}

static int answer(void) {
    while (value("hang")) usleep(2000);
    return value("lost") ? LOST : OK;
}

static int put(unsigned *place, long long number) { *place = (unsigned)number; return answer(); }
static int text(char *place, unsigned length, const char *what) { snprintf(place, length, "%s", what); return answer(); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; while (value("hang")) usleep(2000); return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)value("gpus"); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return index < value("gpus") ? answer() : INVALID;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    char made[32];
    snprintf(made, sizeof made, "GPU-stub-%ld", (long)device - 1);
    return text(uuid, length, made);
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { (void)device; return text(name, length, "Stub GPU"); }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { return text(version, length, "550.0"); }
int nvmlDeviceGetUtilizationRates(void *device, utilization *use) {
    (void)device;
    use->gpu = (unsigned)value("busy");
    use->memory = use->gpu / 2;
    return answer();
}
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *memory) {
    (void)device;
    memory->total = 80000000000ULL;
    memory->reserved = 500000000ULL;
    memory->used = (unsigned long long)value("used");
    memory->free = memory->total - memory->reserved - memory->used;
    return answer();
}
int nvmlDeviceGetMemoryInfo(void *device, memory_v1 *memory) {
    (void)device;
    memory->total = 80000000000ULL;
    memory->used = (unsigned long long)value("used");
    memory->free = memory->total - memory->used;
    return answer();
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = 9;
    *minor = 0;
    return answer();
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { (void)device; return put(milliwatts, value("watts") * 1000); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { (void)device; return put(milliwatts, 700000); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device; (void)sensor;
    return put(celsius, value("celsius"));
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *megahertz) {
    (void)device;
    if (type != 2) return put(megahertz, 1980);
    return value("memory_megahertz") ? put(megahertz, value("memory_megahertz")) : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = (unsigned long long)value("reasons");
    return answer();
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) {
    (void)device; (void)counter;
    *count = (unsigned long long)value(kind ? "uncorrected" : "corrected");
    return answer();
}
