package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestDashboards: what Grafana would put up with silently, and show badly.
func TestDashboards(t *testing.T) {
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	all, err := dashboards()
	if err != nil || len(all) != 4 {
		t.Fatalf("%d dashboards, %v", len(all), err)
	}
	for file, d := range all {
		if file != d.UID+".json" {
			t.Errorf("%s has the uid %q", file, d.UID)
		}
		known := map[string]bool{}
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			where := fmt.Sprintf("%s, %q", d.UID, p.Title)
			if p.Title == "" || ids[p.ID] {
				t.Errorf("%s: no title, or the id %d a second time", where, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: at %d,%d there is %q, or the edge", where, x, y, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: no unit, no query, or a data source of its own", where)
			}
			refs := map[string]bool{}
			for _, q := range p.Targets {
				if q.Expr == "" || q.LegendFormat == "" || refs[q.RefID] {
					t.Errorf("%s: query %s has no text or no legend, or is there twice", where, q.RefID)
				}
				refs[q.RefID] = true
				for _, m := range variable.FindAllStringSubmatch(q.Expr, -1) {
					if !known[m[1]] {
						t.Errorf("%s: there is no variable %s", where, m[0])
					}
				}
			}
		}
	}
}

// tool finds a program of Debian's package prometheus, or has the test skipped.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here; .ci/packages (as root) unpacks it from Debian's package prometheus", name)
	}
	return path
}

// TestAlerts has promtool run the rules against alerts_test.yml, and each rule is there.
func TestAlerts(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
		{"check", "config", "--syntax-only", "prometheus.yml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	text, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := alerts()
	if err != nil || len(rules) == 0 {
		t.Fatal(rules, err)
	}
	for name := range rules {
		if !strings.Contains(string(text), "alertname: "+name+"\n        exp_alerts:") {
			t.Errorf("no test has %s fire", name)
		}
	}
}

// patience is for a busy machine.
const patience = 4 * time.Minute

// TestQueries has Prometheus read a cluster with GPUs, jobs of every kind and a drained node, by prometheus.yml: each query of each panel,
// those of the panels of dashboard 4323, and each metric that an alert or a variable names returns data; all nodes and rules are read.
func TestQueries(t *testing.T) {
	prometheus := tool(t, "prometheus")
	c := startCluster(t)
	c.read(t, prometheus)
	want, err := Queries()
	if err != nil || len(want) == 0 {
		t.Fatal(want, err)
	}
	want[`count(up{job="sluice-nodes", instance=~"n[12]"} == 1) == 2`] = "nodes"
	want[`ALERTS{alertname="SluiceNodeDrained", alertstate="pending", node="n2"}`] = "rules"
	for _, query := range queries4323(t) {
		want[query] = "dashboard 4323"
	}
	for until := time.Now().Add(patience); len(want) > 0; {
		c.shortJob(t)
		for query := range want {
			if c.answers(t, query) {
				delete(want, query)
			}
		}
		if time.Now().After(until) {
			break
		}
	}
	for query, where := range want {
		t.Errorf("%s: nothing is returned for %s", where, query)
	}
	if t.Failed() {
		t.Log(c.tails())
	}
}

// queries4323 are of the kinds that panels of dashboard 4323 have: a metric, with a label where it has one, metrics added up, and how much
// a counter has grown.
func queries4323(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../ctld/metrics/testdata/dashboard-4323.txt")
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for line := range strings.Lines(string(text)) {
		switch words := strings.Fields(line); {
		case words[0] == "#":
			continue
		case len(words) > 1:
			all = append(all, fmt.Sprintf("sum by (%s) (%s{%s!=''})", words[1], words[0], words[1]))
		case strings.HasPrefix(words[0], "slurm_nodes_"):
			nodes = append(nodes, words[0])
			fallthrough
		default:
			all = append(all, words[0])
		}
		if strings.Contains(line, "_backfilled_") {
			all = append(all, fmt.Sprintf("delta(%s[10m])", strings.TrimSpace(line)))
		}
	}
	return append(all, strings.Join(nodes, " + "), "slurm_account_jobs_running{account!~'none'} != 0", "-slurm_nodes_drain")
}

// cluster is a controller and two node daemons of this test.
type cluster struct {
	dir, bin string
	env      []string
	port     int // the controller's; those after it: two of nodes, three of metrics, Prometheus
	daemons  []*daemontest.Daemon
}

func (c *cluster) tails() (all string) {
	for _, d := range c.daemons {
		all += d.Tail(15) + "\n"
	}
	return all
}

// run runs a program of the cluster and gives what it prints.
func (c *cluster) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Env, cmd.Dir = c.env, c.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s\n%s", name, args, err, out, c.tails())
	}
	return strings.TrimSpace(string(out))
}

func (c *cluster) start(t *testing.T, name, program string, args ...string) {
	t.Helper()
	d := daemontest.Launch(t, c.dir, name, syscall.SysProcAttr{}, c.env, program, args...)
	c.daemons = append(c.daemons, d)
}

// stop ends a daemon and waits for it.
func (c *cluster) stop(t *testing.T, d *daemontest.Daemon) {
	_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	if !d.Wait(patience) {
		t.Errorf("%s does not end\n%s", d.Name, d.Tail(20))
		_ = d.Cmd.Process.Kill()
		<-d.Done
	}
}

const confText = `ClusterName=%[1]s
SlurmctldHost=%[2]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=%[4]s
StateSaveLocation=%[5]s/state
GresTypes=gpu
DefMemPerCPU=10
SlurmdParameters=config_overrides,gpu_sample=1
NodeName=n[1-2] NodeHostname=%[2]s NodeAddr=127.0.0.1 Port=[%[6]d-%[7]d] CPUs=8 RealMemory=500 Gres=gpu:a100:4
PartitionName=debug Nodes=ALL Default=YES State=UP
`

// startCluster starts one in which a node is drained, jobs run and jobs wait.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "mon") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint("mon", os.Getpid())
	c := &cluster{dir: dir, bin: filepath.Join(dir, "bin"), port: daemontest.FreePorts(t, 27900, 28900, 10)}
	t.Cleanup(func() {
		for _, d := range slices.Backward(c.daemons) {
			c.stop(t, d)
		}
		daemontest.Sweep(dir, name)
		_ = os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := daemontest.Programs(c.bin, os.Getenv("SLUICE_PROGRAMS"), "sbatch", "scontrol", "squeue", "sinfo"); err != nil {
		t.Fatal(err)
	}
	conf, socket := filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "s")
	me := strconv.Itoa(os.Getuid())
	if u, err := exec.Command("id", "-un").Output(); err == nil {
		me = strings.TrimSpace(string(u))
	}
	if err := os.WriteFile(conf, fmt.Appendf(nil, confText, name, daemontest.Host(t), c.port, me, dir, c.port+1, c.port+2),
		0o644); err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), "SLURM_CONF="+conf, "SLUICE_SOCKET="+socket, "PATH="+c.bin+":"+os.Getenv("PATH"))
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sluice.token"), []byte("a-token-of-prometheus"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"n1", "n2"} {
		c.run(t, "sluice-ctld", "--conf", conf, "issue", "--node", n, "--out", filepath.Join(dir, "tls", n), "--new-authority")
	}
	c.start(t, "ctld", filepath.Join(c.bin, "sluice-ctld"), "--conf", conf, "--socket", socket,
		"--metrics", fmt.Sprint(":", c.port+3), "--metrics-tokens", filepath.Join(dir, "sluice.token"))
	for i, n := range []string{"n1", "n2"} {
		c.start(t, n, filepath.Join(c.bin, "sluice-noded"), "--conf", conf, "--node", n, "--spool", filepath.Join(dir, "spool", n),
			"--tls", filepath.Join(dir, "tls", n), "--gpus", "a100:4", "--no-gpu-files", "--relay", "none", "--socket", socket,
			"--allow-root-jobs", "--metrics", fmt.Sprint(":", c.port+4+i),
			"--metrics-tokens", filepath.Join(dir, "sluice.token"))
	}
	if !daemontest.Poll(patience, func() bool {
		cmd := exec.Command(filepath.Join(c.bin, "sinfo"), "-h", "-N", "-o", "%T")
		cmd.Env = c.env
		out, err := cmd.Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle\nidle"
	}) {
		t.Fatal("the nodes do not come up\n", c.tails())
	}
	c.run(t, "scontrol", "update", "nodename=n2", "state=drain", "reason=test")
	c.run(t, "sbatch", "-A", "physics", "--gres=gpu:2", "-n2", "-o", "/dev/null", "--wrap", "exec sleep 600")
	c.run(t, "sbatch", "-A", "physics", "-w", "n2", "-o", "/dev/null", "--wrap", "true")
	return c
}

// shortJob has a job end, so that something happens.
func (c *cluster) shortJob(t *testing.T) {
	t.Helper()
	c.run(t, "sbatch", "--wait", "-A", "chem", "-o", "/dev/null", "--wrap", "true")
}

// read has Prometheus read the cluster once a second, by prometheus.yml. Both nodes are on this machine, where they cannot have the port
// that nodes have: they are told apart by what the controller calls them.
func (c *cluster) read(t *testing.T, prometheus string) {
	t.Helper()
	text, err := os.ReadFile("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.NewReplacer("head:9341", fmt.Sprint("127.0.0.1:", c.port+3), "/etc/prometheus/", c.dir+"/", ": 30s", ": 1s").
		Replace(string(text)) + "        refresh_interval: 1s\n    relabel_configs:\n"
	for i, n := range []string{"n1", "n2"} {
		conf += fmt.Sprintf("      - {source_labels: [instance, __address__], regex: '%s;127.0.0.1:9342', target_label: __address__, "+
			"replacement: '127.0.0.1:%d'}\n", n, c.port+4+i)
	}
	path := filepath.Join(c.dir, "prometheus.yml")
	ca, err := os.ReadFile(filepath.Join(c.dir, "tls", "n1", "ca.crt"))
	err = errors.Join(err, os.WriteFile(path, []byte(conf), 0o644), os.WriteFile(filepath.Join(c.dir, "sluice-ca.crt"), ca, 0o644),
		os.CopyFS(filepath.Join(c.dir, "sluice-rules"), files))
	if err != nil {
		t.Fatal(err)
	}
	c.start(t, "prometheus", prometheus, "--config.file", path, "--storage.tsdb.path", filepath.Join(c.dir, "tsdb"),
		"--web.listen-address", fmt.Sprint("127.0.0.1:", c.port+6))
}

// answers reports whether a query returns a number.
func (c *cluster) answers(t *testing.T, query string) bool {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	a, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", c.port+6, url.QueryEscape(query)))
	if err != nil {
		return false // it is being started
	}
	defer a.Body.Close()
	var reply struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(a.Body).Decode(&reply); err != nil {
		return false
	}
	if a.StatusCode == http.StatusBadRequest {
		t.Fatalf("Prometheus cannot read %s: %s", query, reply.Error)
	}
	return slices.ContainsFunc(reply.Data.Result, func(r struct{ Value [2]any }) bool {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		return err == nil && !math.IsNaN(v)
	})
}
