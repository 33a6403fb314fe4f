package gpu

import (
	"context"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// A GPU that hangs can block the driver: a call about it returns after minutes, or never. The daemon must not wait for it: jobs
// on other GPUs continue, and the controller is told that the GPU does not answer.

const hangWords = "the driver does not answer queries about it"

// asking notes which GPU the driver is being asked about; empty: none.
func (m *Monitor) asking(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.askedAt = uuid, m.o.Now()
}

// firstLook waits for the driver for a limited time; later results are reported later.
func (m *Monitor) firstLook() {
	done := make(chan struct{})
	go func() {
		m.Look()
		close(done)
	}()
	t := time.NewTimer(hangAfter)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		m.o.Log.Error("the GPU driver does not answer: going on without its GPUs until it does")
	}
}

// watch reports a GPU about which the driver has not answered for too long.
func (m *Monitor) watch(ctx context.Context) {
	t := time.NewTicker(hangAfter / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			m.checkHang()
		}
	}
}

// checkHang adds the fault to the published report; a hung look replaces the report if it ever ends.
func (m *Monitor) checkHang() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked == "" || m.o.Now().Sub(m.askedAt) < hangAfter {
		return
	}
	r := proto.Clone(m.report).(*pb.DeviceReport)
	for _, d := range r.Devices {
		if (d.Id == m.asked || d.Parent == m.asked) && d.Fault == "" {
			d.Fault, d.FaultNs = hangWords, m.askedAt.UnixNano()
		}
	}
	if !proto.Equal(r, m.report) {
		m.o.Log.Error("the driver does not answer queries about a GPU, which is taken out of the pool", "gpu", m.asked)
		m.report = r
		signal(m.changed)
	}
}

// end waits for the goroutines of Run, but not for a driver that hangs.
func (m *Monitor) end(wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	t := time.NewTimer(10 * eventWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
