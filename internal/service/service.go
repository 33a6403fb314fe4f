// Package service reports a daemon's state to systemd (sd_notify(3)) if it is a service of Type=notify or Type=notify-reload, and
// sends keep-alive messages if the unit has WatchdogSec=. Otherwise it does nothing.
package service

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Manager is the service manager that started this daemon. Its methods may be called on nil, and from any goroutine.
type Manager struct {
	log   *slog.Logger
	every time.Duration // between keep-alives; 0: none
}

// New reads the environment.
func New(log *slog.Logger) *Manager {
	m := &Manager{log: log}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog gets no sign of life", "err", err)
	}
	m.every = every / 3
	return m
}

// Ready reports that the daemon has started, or has reread its configuration; status is for systemctl status.
func (m *Manager) Ready(status string) { m.tell(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// Reloading reports that the configuration is being reread. Ready must follow, whatever the result.
func (m *Manager) Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		m.tell(daemon.SdNotifyReloading + "\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10))
	}
}

// Stopping reports that the daemon is shutting down.
func (m *Manager) Stopping() { m.tell(daemon.SdNotifyStopping) }

// Watch sends keep-alives until ctx ends, as long as alive returns true, with a status for systemctl status; status may be nil. If
// alive blocks, no keep-alive is sent.
func (m *Manager) Watch(ctx context.Context, alive func() bool, status func() string) {
	if m == nil || m.every <= 0 {
		return
	}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		if alive() {
			state := daemon.SdNotifyWatchdog
			if status != nil {
				state += "\nSTATUS=" + status()
			}
			m.tell(state)
		} else {
			m.log.Warn("no sign of life for the service manager: a part of this daemon stands still")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Manager) tell(state string) {
	if m == nil {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("cannot tell the service manager how this daemon is doing", "err", err)
	}
}
