// Package nvml is the gpu.Source of machines with NVIDIA's driver, over its management library. The library is loaded when Open
// is called and not before: the daemon starts on a machine without it. A function that an old driver does not have is looked up
// before it is called, because calling it would end the process.
//
// It needs cgo. Built without it (CGO_ENABLED=0), Open says so.
package nvml
