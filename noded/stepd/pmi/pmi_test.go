package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a step of several nodes: what srun does between them.
type world struct {
	stepwire.Names
	mu      sync.Mutex
	nodes   []*Node
	put     []Pair
	arrived int
	said    []string
	aborted []uint32
}

// part is a node's side of it.
type part struct {
	*world
	node int
}

func newWorld(job Job, tasks ...int) *world {
	w := &world{}
	for i, n := range tasks {
		w.nodes = append(w.nodes, New(job, n, part{w, i}))
	}
	return w
}

func (w *world) close() {
	for _, n := range w.nodes {
		n.Close()
	}
}

func (p part) Fence(puts []Pair) {
	p.mu.Lock()
	p.put, p.arrived = append(p.put, puts...), p.arrived+1
	all, put := p.arrived == len(p.nodes), p.put
	if all {
		p.world.put, p.world.arrived = nil, 0
	}
	p.mu.Unlock()
	if all {
		for _, n := range p.nodes {
			n.Spread(put)
		}
	}
}

func (p part) Left(rank uint32) {
	for i, n := range p.nodes {
		if i != p.node {
			n.Fail(fmt.Errorf("task %d takes part no more", rank))
		}
	}
}

func (p part) Withdraw(name string) { p.Names.Withdraw(name) }

func (p part) Abort(rank uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted = append(p.aborted, rank)
}

func (p part) Say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, line)
}

// client is a task.
type client struct {
	conn    net.Conn
	r       *bufio.Reader
	version string
	served  chan struct{}
}

func (n *Node) client(rank uint32) *client {
	ours, theirs := net.Pipe()
	c := &client{conn: ours, r: bufio.NewReader(ours), served: make(chan struct{})}
	go func() {
		defer close(c.served)
		defer theirs.Close()
		n.Task(rank).Serve(theirs)
	}()
	return c
}

// close ends a task, and waits until it is served no more.
func (c *client) close() {
	_ = c.conn.Close()
	<-c.served
}

// ask writes a request in the form of the version that has been agreed on, and reads the answer as it is.
func (c *client) ask(request string) (string, error) {
	text := request + "\n"
	if c.version == "2" {
		text = fmt.Sprintf("%6d%s", len(request), request)
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		return "", err
	}
	if c.version == "2" {
		head := make([]byte, lengthLen)
		if _, err := io.ReadFull(c.r, head); err != nil {
			return "", err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(head)))
		if err != nil {
			return "", err
		}
		body := make([]byte, n)
		_, err = io.ReadFull(c.r, body)
		return string(head) + string(body), err
	}
	answer, err := c.r.ReadString('\n')
	if v, ok := strings.CutPrefix(request, "cmd=init pmi_version="); ok && strings.Contains(answer, "rc=0") {
		c.version = v[:1]
	}
	return strings.TrimSuffix(answer, "\n"), err
}

// TestRecorded holds conversations that MPI programs have with a real Slurm.
func TestRecorded(t *testing.T) {
	raw, err := os.ReadFile("testdata/slurm-22.05.txt")
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`^(\d+) tasks of (\S+), mapping (\S*)`)
	blocks := strings.Split(string(raw), "\n= ")[1:]
	if len(blocks) < 10 {
		t.Fatalf("%d conversations", len(blocks))
	}
	for _, block := range blocks {
		m := head.FindStringSubmatch(block)
		size, _ := strconv.Atoi(m[1])
		w := newWorld(Job{ID: m[2], Size: uint32(size), Mapping: m[3]}, size-size/2, size/2)
		if size == 1 {
			w = newWorld(Job{ID: m[2], Size: 1, Mapping: m[3]}, 1)
		}
		type exchange struct{ request, answer string }
		of := make([][]exchange, size)
		for line := range strings.Lines(block[len(m[0]):]) {
			rank, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "> ")
			if n, err := strconv.Atoi(rank); ok && err == nil {
				of[n] = append(of[n], exchange{request: text})
			} else if rank, text, ok = strings.Cut(strings.TrimSuffix(line, "\n"), "< "); ok {
				n, _ := strconv.Atoi(rank)
				of[n][len(of[n])-1].answer = text
			}
		}
		var all sync.WaitGroup
		for rank := range size {
			c := w.nodes[rank%len(w.nodes)].client(uint32(rank))
			all.Go(func() {
				for _, x := range of[rank] {
					if got, err := c.ask(x.request); err != nil || got != x.answer {
						t.Errorf("task %d of %s: %q is answered by %q, %v, and by Slurm with %q", rank, m[2], x.request, got, err, x.answer)
						return
					}
				}
			})
			defer c.close()
		}
		all.Wait()
	}
}

// TestFences: whatever tasks put before a fence, all tasks have after it, and nothing of it before.
func TestFences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		var tasks []int
		size := 0
		for range nodes {
			tasks = append(tasks, rapid.IntRange(1, 3).Draw(t, "tasks"))
			size += tasks[len(tasks)-1]
		}
		version := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
		values := rapid.StringMatching(`[a-zA-Z0-9$#:;,/+-]{0,40}`)
		rounds := rapid.SliceOfN(rapid.SliceOfN(values, size, size), 1, 3).Draw(t, "values")
		w := newWorld(Job{ID: "1.0", Size: uint32(size)}, tasks...)
		defer w.close()
		var all sync.WaitGroup
		errs := make(chan error, size)
		rank := 0
		for i, n := range tasks {
			for range n {
				c, me := w.nodes[i].client(uint32(rank)), rank
				defer c.close()
				all.Go(func() { errs <- c.exchange(version, me, rounds) })
				rank++
			}
		}
		all.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// exchange is what a task of TestFences does.
func (c *client) exchange(version string, rank int, rounds [][]string) error {
	sub := map[string]string{"1": "1", "2": "0"}[version]
	if got, err := c.ask("cmd=init pmi_version=" + version + " pmi_subversion=" + sub); err != nil || !strings.Contains(got, "rc=0") {
		return fmt.Errorf("init: %q, %v", got, err)
	}
	form := map[string][4]string{"1": {"cmd=put kvsname=1.0 key=%s value=%s", "cmd=get kvsname=1.0 key=%s", "cmd=barrier_in", " value="},
		"2": {"cmd=kvs-put;key=%s;value=%s;", "cmd=kvs-get;jobid=1.0;srcid=-1;key=%s;", "cmd=kvs-fence;", ";value="}}[version]
	escape := func(s string) string {
		if version == "2" {
			return strings.ReplaceAll(s, ";", ";;")
		}
		return s
	}
	for round, values := range rounds {
		key := func(rank int) string { return fmt.Sprintf("r%d-%d", round, rank) }
		if got, err := c.ask(fmt.Sprintf(form[1], key(rank))); err != nil || strings.Contains(got, form[3]) {
			return fmt.Errorf("get before the fence: %q, %v", got, err)
		}
		if got, err := c.ask(fmt.Sprintf(form[0], key(rank), escape(values[rank]))); err != nil || !strings.Contains(got, "rc=0") {
			return fmt.Errorf("put: %q, %v", got, err)
		}
		if got, err := c.ask(form[2]); err != nil || !strings.Contains(got, "rc=0") {
			return fmt.Errorf("fence: %q, %v", got, err)
		}
		for other, want := range values {
			got, err := c.ask(fmt.Sprintf(form[1], key(other)))
			_, value, _ := strings.Cut(got, form[3])
			if version == "2" {
				value = strings.TrimSuffix(value, ";")
			}
			if err != nil || value != escape(want) {
				return fmt.Errorf("task %d has %q of task %d, which put %q (%v)", rank, got, other, want, err)
			}
		}
	}
	return nil
}

// agreed is a task that has said which version it speaks.
func (n *Node) agreed(t *testing.T, rank uint32, version string) *client {
	t.Helper()
	c := n.client(rank)
	sub := map[string]string{"1": "1", "2": "0"}[version]
	if _, err := c.ask("cmd=init pmi_version=" + version + " pmi_subversion=" + sub); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTaskThatEnds: the others are told that they wait in vain, on its node and on others.
func TestTaskThatEnds(t *testing.T) {
	w := newWorld(Job{ID: "1.0", Size: 3}, 2, 1)
	one, other, far := w.nodes[0].agreed(t, 0, "1"), w.nodes[0].agreed(t, 1, "1"), w.nodes[1].agreed(t, 2, "2")
	defer other.close()
	defer far.close()
	answers := make(chan string, 2)
	for _, c := range []*client{other, far} {
		go func() {
			request := map[string]string{"1": "cmd=barrier_in", "2": "cmd=kvs-fence;"}[c.version]
			got, err := c.ask(request)
			answers <- fmt.Sprint(got, err)
		}()
	}
	one.close()
	for range 2 {
		if got := <-answers; !strings.Contains(got, "rc=-1") || !strings.HasSuffix(got, "<nil>") {
			t.Errorf("a fence without all: %s", got)
		}
	}
	if said := strings.Join(w.said, "\n"); !strings.Contains(said, "mpi/pmi2: the tasks cannot meet: task 0 takes part no more") {
		t.Errorf("said %q", said)
	}
}

// TestRefused: who breaks the protocol loses the connection, and is told why in a line.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct{ version, wrote, says string }{
		{"0", "rubbish\n", "request not begin with 'cmd='"},
		{"0", "cmd=put kvsname=x key=a value=b\n", "'put' comes before 'init'"},
		{"0", "cmd=init pmi_version=3 pmi_subversion=0\n", "unsupported PMI version: 3.0"},
		{"0", "cmd=init pmi_version=2 pmi_subversion=1\n", "unsupported PMI version: 2.1"},
		{"0", long, "client request too long"},
		{"1", "cmd=bogus a=b\n", "invalid pmi1 command received: 'bogus'"},
		{"1", "cmd=getbyidx kvsname=x idx=0\n", "PMI1 request of 'getbyidx' not supported"},
		{"1", "\x1b[31m\xff\n", "request not begin with 'cmd='"},
		{"1", "cmd=\x1b[31m\xff\n", "invalid pmi1 command received: '?[31m?'"},
		{"1", "mcmd=spawn\n" + strings.Repeat("a=b\n", maxSpawn+1), "client request too long"},
		{"2", "999999", "client request too long"},
		{"2", "  xyz ", "is no length"},
		{"2", "    -1", "is no length"},
		{"2", "     9cmd=bogus", "a field has no end"},
		{"2", "    10cmd=bogus;", "invalid pmi2 command received: 'bogus'"},
		{"2", "     0", "request not begin with 'cmd='"},
	} {
		w := newWorld(Job{ID: "1.0", Size: 1}, 1)
		var task *client
		if c.version == "0" {
			task = w.nodes[0].client(0)
		} else {
			task = w.nodes[0].agreed(t, 0, c.version)
		}
		go func() { _, _ = io.WriteString(task.conn, c.wrote) }()
		_, _ = io.Copy(io.Discard, task.conn) // it is closed
		<-task.served
		task.close()
		if len(w.said) != 1 || !strings.Contains(w.said[0], c.says) {
			t.Errorf("after %.40q: said %q, want %q", c.wrote, w.said, c.says)
		}
	}
}

// TestBounds: there is no more in memory than there may be.
func TestBounds(t *testing.T) {
	n := New(Job{ID: "1.0", Size: 1}, 1, part{&world{}, 0})
	value := strings.Repeat("x", 1<<20)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = n.put(Pair{fmt.Sprint(i), value})
	}
	if !errors.Is(err, errFull) || n.cost > maxPuts {
		t.Errorf("%d bytes put, %v", n.cost, err)
	}
	for range 1000 {
		if err := n.put(Pair{"0", value}); err != nil { // in place of what is there
			t.Fatal(err)
		}
	}
	for i := range 2 * maxStored / len(value) {
		n.Spread([]Pair{{fmt.Sprint(i), value}})
	}
	if n.kept > maxStored || n.failed == nil {
		t.Errorf("%d bytes kept, %v", n.kept, n.failed)
	}
	if _, err := n.fence(); err == nil {
		t.Error("a fence succeeds although something has been lost")
	}
	for i := 0; n.setAttr(fmt.Sprint(i), strings.Repeat("x", 1000)) == nil; i++ {
	}
	if n.attrs.cost > maxAttrs {
		t.Errorf("%d bytes of attributes", n.attrs.cost)
	}
}

// TestOfOneNode: attributes that a task waits for, abort, and more tasks than there are.
func TestOfOneNode(t *testing.T) {
	w := newWorld(Job{ID: "1.0", Size: 2}, 2)
	defer w.close()
	a, b := w.nodes[0].agreed(t, 0, "2"), w.nodes[0].agreed(t, 1, "2")
	defer a.close()
	defer b.close()
	got := make(chan string)
	go func() {
		answer, _ := a.ask("cmd=info-getnodeattr;key=shm;wait=TRUE;thrid=t1;")
		got <- answer
	}()
	if answer, err := b.ask("cmd=info-putnodeattr;key=shm;value=a;;b;"); err != nil || !strings.Contains(answer, "rc=0") {
		t.Fatalf("%q %v", answer, err)
	}
	if answer := <-got; !strings.HasSuffix(answer, "cmd=info-getnodeattr-response;thrid=t1;rc=0;found=TRUE;value=a;;b;") {
		t.Errorf("%q", answer)
	}
	if answer, _ := b.ask("cmd=spawn;ncmds=1;"); !strings.Contains(answer, "rc=-1;errmsg=MPI_Comm_spawn is not supported;") {
		t.Errorf("%q", answer)
	}
	_, _ = io.WriteString(a.conn, "    23cmd=abort;isworld=TRUE;")
	_, _ = io.Copy(io.Discard, a.conn)
	<-a.served
	if len(w.aborted) != 1 || w.aborted[0] != 0 {
		t.Errorf("aborted %v", w.aborted)
	}
	c := New(Job{ID: "1.0", Size: 1}, 1, part{w, 0}).agreed(t, 0, "1")
	defer c.close()
	if answer, err := c.ask("mcmd=spawn\nnprocs=1\nexecname=true\nendcmd"); err != nil || answer != "cmd=spawn_result rc=-1" {
		t.Errorf("%q %v", answer, err)
	}
}

// written is a connection of which everything has been written.
type written struct {
	io.Reader
	answers bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) { return w.answers.Write(b) }

// FuzzTask: whatever a task writes, it gets answers, or loses the connection.
func FuzzTask(f *testing.F) {
	f.Add([]byte("cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=1.0 key=a value=b\ncmd=barrier_in\ncmd=get key=a\n" +
		"cmd=finalize\n"))
	f.Add([]byte("cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;    14cmd=kvs-fence;    23cmd=abort;isworld=TRUE;"))
	f.Add([]byte("cmd=init pmi_version=1 pmi_subversion=1\nmcmd=spawn\nendcmd\n"))
	f.Fuzz(func(t *testing.T, wrote []byte) {
		w := newWorld(Job{ID: "1.0", Size: 1, Mapping: "(vector,(0,1,1))"}, 1)
		w.close() // nothing is waited for that nobody sends
		conn := &written{Reader: bytes.NewReader(wrote)}
		w.nodes[0].Task(0).Serve(conn)
		if conn.answers.Len() > 64*len(wrote)+1024 {
			t.Errorf("%d bytes are answered with %d", len(wrote), conn.answers.Len())
		}
	})
}
