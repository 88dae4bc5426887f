/* A library in the place of the management library's, on a machine that does not say everything: clocks of the SMs, and
   nothing of memory, power, temperature or what holds clocks back (NVML API reference, NVML_ERROR_NOT_SUPPORTED). */
enum { OK = 0, NOT_SUPPORTED = 3, SM = 1 };

int nvmlInit_v2(void) { return OK; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = (void *)0x10; return OK; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { return NOT_SUPPORTED; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { return NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) { return NOT_SUPPORTED; }
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) {
  *mhz = 1980;
  return clock == SM ? OK : NOT_SUPPORTED;
}
