// Package nvml is the gpu.Source of machines with NVIDIA's driver, over its management library. Open loads the library,
// so the daemon also starts on a machine without it. A function that an old driver may lack is looked up before it is
// called, because calling it would end the process.
//
// It needs cgo. Built without it (CGO_ENABLED=0), Open says so.
package nvml
