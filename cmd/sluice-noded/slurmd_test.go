package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/hw"
)

// TestPrintHardware: as slurmd -C of Slurm 22.05 prints a host with hyper-threads.
func TestPrintHardware(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1800000000, 0)
	booted := now.Add(-(26*time.Hour + 3*time.Minute + 999*time.Millisecond)).UnixNano()
	inv := hw.Inventory{Topology: hw.Build(2, 8, 2), MemoryMiB: 31848, Hostname: "node1", BootNS: booted}
	if err := printHardware(&out, &hw.Fake{Inv: inv}, func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	want := "NodeName=node1 CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=31848\nUpTime=1-02:03:00\n"
	if out.String() != want {
		t.Errorf("%swant\n%s", out.String(), want)
	}
}
