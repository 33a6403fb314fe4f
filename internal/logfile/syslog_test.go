package logfile

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is a syslog daemon at a path.
func daemon(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// heard gives the next message, or none where there is none yet.
func heard(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	conn, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	n, got := 0, error(nil)
	if err := conn.Read(func(fd uintptr) bool {
		n, _, got = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if got == unix.EAGAIN {
		return ""
	}
	if got != nil {
		t.Fatal(got)
	}
	return string(buf[:n])
}

func syslogged(t *testing.T) (l *Log, path string) {
	t.Helper()
	dir := t.TempDir()
	l, err := Open(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "dev-log")
	l.syslog = newSyslog(path)
	return l, path
}

// TestSyslog: messages have priority, time, name and process; what is below the level is not sent, and by default nothing.
func TestSyslog(t *testing.T) {
	l, path := syslogged(t)
	d := daemon(t, path)
	log := slog.New(slog.NewMultiHandler(l.Handler(slog.LevelError), l.Syslog())).With("node", "n1")
	log.Error("silent")
	if got := heard(t, d); got != "" {
		t.Errorf("without a level: %q", got)
	}
	l.SetSyslog(slog.LevelInfo)
	log.Debug("no")
	log.Info("i")
	log.Warn("w", "time", 1)
	if err := l.Line([]byte("time=2026-01-02T03:04:05Z level=ERROR msg=other\n"), 7); err != nil {
		t.Fatal(err)
	}
	if err := l.Line([]byte("time=2026-01-02T03:04:05Z level=DEBUG msg=no\n"), 7); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf(`^<30>\w{3} [ \d]\d \d\d:\d\d:\d\d logfile\.test\[%d\]: level=INFO msg=i node=n1$`, os.Getpid()),
		`^<28>.*: level=WARN msg=w node=n1$`,
		`^<27>.* logfile\.test\[7\]: level=ERROR msg=other$`,
		`^$`,
	} {
		if got := heard(t, d); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q, want %s", got, want)
		}
	}
	l.SetSyslog(slog.LevelDebug)
	log.Debug(strings.Repeat("x", 2*maxSyslog))
	if got := heard(t, d); len(got) != maxSyslog || !strings.HasPrefix(got, "<31>") {
		t.Errorf("a long line has %d bytes", len(got))
	}
	if got := read(t, l.Path()); strings.Contains(got, "msg=i") {
		t.Errorf("the log has what was for syslog: %s", got)
	}
}

// TestSyslogRestart: a syslog daemon that is started anew is found again, and one that is away or does not read holds nobody up; what was
// left out is counted.
func TestSyslogRestart(t *testing.T) {
	l, path := syslogged(t)
	l.SetSyslog(slog.LevelInfo)
	log := slog.New(l.Syslog())
	log.Info("nobody listens")
	log.Info("nor now")
	d := daemon(t, path)
	l.syslog.tried = time.Time{}
	log.Info("first")
	if got := heard(t, d); !strings.HasSuffix(got, `level=WARN msg="lines to syslog are left out" lines=2`) {
		t.Errorf("%q", got)
	}
	if got := heard(t, d); !strings.HasSuffix(got, "msg=first") {
		t.Errorf("%q", got)
	}
	_ = d.Close()
	_ = os.Remove(path)
	d = daemon(t, path)
	l.syslog.tried = time.Time{}
	log.Info("second")
	if got := heard(t, d); !strings.HasSuffix(got, "msg=second") {
		t.Errorf("after a restart: %q", got)
	}
	for l.syslog.missed == 0 { // until the socket is full
		log.Info("flood")
	}
	for heard(t, d) != "" {
	}
	log.Info("third")
	if got := heard(t, d); !strings.HasSuffix(got, "are left out\" lines=1") {
		t.Errorf("after a flood: %q", got)
	}
}
