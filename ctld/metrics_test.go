package ctld

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// scrape asks for a page; token may be "".
func scrape(t *testing.T, c *http.Client, url, token string) (status int, body string) {
	t.Helper()
	q, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := c.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// patience is for a busy machine.
const patience = 2 * time.Minute

// scrapeUntil asks until the answer says something: a page is good for a second.
func scrapeUntil(t *testing.T, c *http.Client, url, token, want string) {
	t.Helper()
	var body string
	if !daemontest.Poll(patience, func() bool {
		_, body = scrape(t, c, url, token)
		return strings.Contains(body, want)
	}) {
		t.Fatalf("%s never says %q:\n%s", url, want, body)
	}
}

// TestMetricsOnLoopback: everybody on the machine may read, but with PrivateData=jobs or usage not whose jobs there are.
func TestMetricsOnLoopback(t *testing.T) {
	for _, private := range []string{"jobs", "usage"} {
		t.Run(private, func(t *testing.T) { metricsOnLoopback(t, private) })
	}
}

func metricsOnLoopback(t *testing.T, private string) {
	const token = "a-token-of-prometheus"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprint("127.0.0.1:", daemontest.FreePorts(t, 20000, 27000, 1))
	dial, stop := startDaemon(t, fmt.Sprintf("PrivateData=%s\nMetricsType=metrics/openmetrics\nMetricsParameters=listen=%s,tokens=%s",
		private, addr, tokens))
	defer stop()
	if _, err := dial().Submit(t.Context(), heldJob()); err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	scrapeUntil(t, c, "http://"+addr+"/metrics", token, fmt.Sprintf("slurm_user_jobs_pending{user=%q} 1", me.Username))
	scrapeUntil(t, c, "http://"+addr+"/metrics", "", "slurm_queue_pending 1")
	for _, page := range []string{"/metrics", "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler",
		"/metrics/jobs-users-accts"} {
		status, body := scrape(t, c, "http://"+addr+page, "")
		if status != 200 || strings.Contains(body, `user="`) || strings.Contains(body, `username="`) ||
			strings.Contains(body, `account="`) {
			t.Errorf("%s: %d, and names users although their jobs are private:\n%s", page, status, body)
		}
	}
	if _, body := scrape(t, c, "http://"+addr+"/metrics", ""); !strings.Contains(body, "sluice_commit_seconds_count") ||
		strings.Contains(body, "sluice_commit_seconds_count 0\n") {
		t.Error("commits are not measured")
	}
}

// TestMetricsForOthers: another host sees nothing without a token or a certificate for it, and that of a node is none.
func TestMetricsForOthers(t *testing.T) {
	const token = "a-token-of-prometheus"
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := daemontest.FreePorts(t, 20000, 27000, 1)
	_, stop := startDaemon(t, fmt.Sprintf("MetricsParameters=listen=0.0.0.0:%d,tokens=%s", port, tokens))
	defer stop()
	state := filepath.Join(filepath.Dir(lastConf), "state")
	url := fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	var ca []byte
	if !daemontest.Poll(patience, func() (ok bool) {
		ca, _ = os.ReadFile(filepath.Join(state, "tls", "ca.crt"))
		return len(ca) > 0
	}) {
		t.Fatal("there is no authority")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := func(role, name string) *http.Client {
		cfg := &tls.Config{RootCAs: pool}
		if role != "" {
			out := filepath.Join(dir, role)
			if _, err := Issue(state, name, role, out, false); err != nil {
				t.Fatal(err)
			}
			_, crt, key := mtls.Paths(out, role)
			pair, err := tls.LoadX509KeyPair(crt, key)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	}
	scrapeUntil(t, client("", ""), url, token, "slurm_nodes_total 4")
	scrapeUntil(t, client(mtls.RoleMonitor, "prometheus"), url, "", "slurm_nodes_total 4")
	for name, c := range map[string]*http.Client{"nothing": client("", ""), "the certificate of a node": client(mtls.RoleNode, "n1")} {
		if status, body := scrape(t, c, url, ""); status != http.StatusUnauthorized || strings.Contains(body, "slurm_") {
			t.Errorf("with %s: %d\n%s", name, status, body)
		}
	}
	if status, body := scrape(t, client("", ""), strings.Replace(url, "https", "http", 1), token); status == 200 {
		t.Errorf("without TLS: %d\n%s", status, body)
	}
}

// TestMetricsOff: MetricsType=none listens nowhere.
func TestMetricsOff(t *testing.T) {
	port := daemontest.FreePorts(t, 20000, 27000, 1)
	dial, stop := startDaemon(t, fmt.Sprintf("MetricsType=none\nMetricsParameters=listen=127.0.0.1:%d", port))
	defer stop()
	if _, err := dial().Stats(t.Context(), &pb.StatsRequest{}); err != nil {
		t.Fatal(err)
	}
	status, body := scrape(t, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), "")
	if status != 0 || !strings.Contains(body, "refused") {
		t.Errorf("%d %s", status, body)
	}
}

// TestTokensEnd: those of a file that is emptied, spoilt or deleted are good no longer.
func TestTokensEnd(t *testing.T) {
	const token = "a-token-of-prometheus"
	tokens := filepath.Join(t.TempDir(), "tokens")
	fill := func() {
		if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	addr := fmt.Sprint("127.0.0.1:", daemontest.FreePorts(t, 20000, 27000, 1))
	dial, stop := startDaemon(t, fmt.Sprintf("MetricsParameters=listen=%s,tokens=%s", addr, tokens))
	defer stop()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrapeUntil(t, c, "http://"+addr+"/metrics", token, "slurm_nodes_total 4")
	reconfigure := func() {
		t.Helper()
		if _, err := dial().Reconfigure(t.Context(), &pb.ReconfigureRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, spoil := range map[string]func() error{
		"emptied": func() error { return os.Truncate(tokens, 0) },
		"open":    func() error { return os.Chmod(tokens, 0o644) },
		"deleted": func() error { return os.Remove(tokens) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		reconfigure()
		if status, body := scrape(t, c, "http://"+addr+"/metrics", token); status != http.StatusUnauthorized {
			t.Errorf("%s: %d\n%.200s", name, status, body)
		}
		_ = os.Remove(tokens)
		fill()
		reconfigure()
		if status, body := scrape(t, c, "http://"+addr+"/metrics", token); status != http.StatusOK {
			t.Errorf("after it was %s and written again: %d\n%.200s", name, status, body)
		}
	}
}

// TestMetricsLater: an address that somebody else has is used when he has gone.
func TestMetricsLater(t *testing.T) {
	defer func(was time.Duration) { metricsAgain = was }(metricsAgain)
	metricsAgain = time.Millisecond
	holder, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	dial, stop := startDaemon(t, "MetricsParameters=listen="+holder.Addr().String())
	defer stop()
	if _, err := dial().Stats(t.Context(), &pb.StatsRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrapeUntil(t, c, "http://"+holder.Addr().String()+"/metrics", "", "slurm_nodes_total 4")
}

// TestMetricsAddr: slurm.conf counts more than the command line.
func TestMetricsAddr(t *testing.T) {
	for _, c := range []struct{ line, flag, want string }{
		{"", "", DefaultMetrics},
		{"", "none", ""},
		{"", "127.0.0.1:1", "127.0.0.1:1"},
		{"MetricsParameters=listen=127.0.0.1:2", "none", "127.0.0.1:2"},
		{"MetricsType=none", "127.0.0.1:1", ""},
	} {
		text := "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=n1\n" + c.line + "\n"
		path := filepath.Join(t.TempDir(), "slurm.conf")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg, err := conf.Load(path, conf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &daemon{opts: Options{Metrics: c.flag}, conf: &atomic.Pointer[conf.Config]{}}
		d.conf.Store(cfg)
		if got := d.metricsAddr(); got != c.want {
			t.Errorf("%q --metrics=%s: %q, not %q", c.line, c.flag, got, c.want)
		}
	}
}
