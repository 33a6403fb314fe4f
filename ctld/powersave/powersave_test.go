package powersave

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// writer is the state, one command at a time.
type writer struct {
	mu     sync.Mutex
	view   atomic.Pointer[state.View]
	runner *Runner
	now    int64
	even   *sync.Cond // nothing is owed any more; its lock is mu
}

func (w *writer) do(_ context.Context, cmd reactor.Command) (any, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now++
	tx := state.Begin(w.view.Load(), w.now)
	reply := cmd.Handle(tx)
	v, change := tx.Freeze()
	w.view.Store(v)
	w.runner.Changed(change)
	w.even.Broadcast()
	return reply, nil
}

// owes is a command that makes nodes be owed a program.
type owes struct {
	program string
	nodes   []string
}

func (c owes) Handle(tx *state.Tx) any {
	for _, name := range c.nodes {
		n := *tx.Node(name)
		n.NodeRecord = state.CloneNode(n.NodeRecord)
		n.PowerProgram, n.PowerNs = c.program, tx.NowNS
		tx.Emit(state.NodeChanged{Node: &n, What: "test", Durable: true})
	}
	return nil
}

func newWriter(t *testing.T, suspend, resume string, timeout time.Duration) (w *writer, dir string, log *strings.Builder) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"suspend": suspend, "resume": resume} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ncd "+dir+"\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg := &state.Config{Settings: &state.Settings{}}
	for _, n := range []string{"n1", "n2", "n3"} {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 1})
	}
	w, log = &writer{}, &strings.Builder{}
	w.even = sync.NewCond(&w.mu)
	w.view.Store(state.New(cfg, "c", 1))
	w.runner = New(filepath.Join(dir, "records"), func() Settings {
		return Settings{Suspend: filepath.Join(dir, "suspend"), Resume: filepath.Join(dir, "resume"), Timeout: timeout, Cluster: "c"}
	}, w.view.Load, w.do, slog.New(slog.NewTextHandler(log, nil)))
	return w, dir, log
}

// run lets the runner work until nothing is owed any more.
func (w *writer) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.runner.Run(ctx) }()
	w.mu.Lock()
	for slices.ContainsFunc(w.view.Load().Nodes(), func(n *state.Node) bool { return n.PowerProgram != "" }) {
		w.even.Wait()
	}
	w.mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestProgramsThatAreOwed(t *testing.T) {
	w, dir, log := newWriter(t, `echo "$1" >>suspended; echo broken; exit 7`,
		`echo "$1" >>resumed; cat "$SLURM_RESUME_FILE" >file`, time.Hour)
	_, _ = w.do(context.Background(), owes{reactor.PowerSuspend, []string{"n1", "n3"}})
	_, _ = w.do(context.Background(), owes{reactor.PowerResume, []string{"n2"}})
	w.run(t)
	for name, want := range map[string]string{"suspended": "n[1,3]\n", "resumed": "n2\n"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var file struct {
		All  string `json:"all_nodes"`
		Jobs []any
	}
	b, _ := os.ReadFile(filepath.Join(dir, "file"))
	if err := json.Unmarshal(b, &file); err != nil || file.All != "n2" || file.Jobs == nil {
		t.Errorf("SLURM_RESUME_FILE has %s: %v", b, err)
	}
	if text := log.String(); !strings.Contains(text, "exit status 7") || !strings.Contains(text, "broken") {
		t.Errorf("the log does not say how SuspendProgram failed:\n%s", text)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "records")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestProgramThatHangs(t *testing.T) {
	w, _, log := newWriter(t, "sleep 3600", "", 50*time.Millisecond)
	_, _ = w.do(context.Background(), owes{reactor.PowerSuspend, []string{"n1"}})
	w.run(t)
	if text := log.String(); !strings.Contains(text, "it ran longer than") {
		t.Errorf("the log does not say that it was killed:\n%s", text)
	}
}

// TestOneProgramOfANode: a decision made while a program runs for a node waits for that program's end.
func TestOneProgramOfANode(t *testing.T) {
	w, dir, _ := newWriter(t, "echo >begun; read line <go; echo down >>order", "echo up >>order", time.Hour)
	for _, name := range []string{"begun", "go"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = w.do(context.Background(), owes{reactor.PowerSuspend, []string{"n1"}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.ReadFile(filepath.Join(dir, "begun")) // waits for who writes
		_, _ = w.do(context.Background(), owes{reactor.PowerResume, []string{"n1"}})
		_ = os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0o600)
	}()
	w.run(t)
	<-done
	if got, _ := os.ReadFile(filepath.Join(dir, "order")); string(got) != "down\nup\n" {
		t.Errorf("they ran in the order %q", got)
	}
}
