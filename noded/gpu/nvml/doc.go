// Package nvml is the gpu.Source of machines with NVIDIA's driver, over its management library. Open loads the library, so the
// daemon also starts on a machine without it. Functions that old drivers lack are looked up before each call, because a call to a
// missing one would end the process.
//
// It needs cgo. Built without it (CGO_ENABLED=0), Open says so.
package nvml
