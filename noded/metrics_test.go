package noded

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMetricsDoNotStopTheNode: neither a wrong file of tokens nor an address that somebody else has keeps the node from its work, and when
// the address is free metrics are served there.
func TestMetricsDoNotStopTheNode(t *testing.T) {
	defer func(was time.Duration) { metricsAgain = was }(metricsAgain)
	metricsAgain = time.Millisecond
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
	}{{"missing", "", 0}, {"empty", "", 0o600}, {"mode", "0123456789abcdef\n", 0o644}, {"short", "x\n", 0o600}} {
		t.Run(c.name, func(t *testing.T) {
			tokens := filepath.Join(t.TempDir(), "tokens")
			if c.mode != 0 {
				must(t, os.WriteFile(tokens, []byte(c.text), 0o600))
				must(t, os.Chmod(tokens, c.mode))
			}
			holder, err := net.Listen("tcp4", "127.0.0.1:0")
			must(t, err)
			defer holder.Close()
			ctl := newController(t)
			d := newDaemon(t, ctl, newFakeSteps(t))
			d.o.Log = slog.New(slog.DiscardHandler)
			d.o.Metrics, d.o.MetricsTokens = holder.Addr().String(), tokens
			d.start()
			ctl.hello(0)
			must(t, holder.Close())
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			status := func(token string) (int, string) {
				q, err := http.NewRequest("GET", "http://"+holder.Addr().String()+"/metrics", nil)
				must(t, err)
				if token != "" {
					q.Header.Set("Authorization", "Bearer "+token)
				}
				a, err := client.Do(q)
				if err != nil {
					return 0, err.Error()
				}
				defer a.Body.Close()
				b, err := io.ReadAll(a.Body)
				must(t, err)
				return a.StatusCode, string(b)
			}
			var code int
			var body string
			for end := time.Now().Add(2 * time.Minute); code != 200 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				code, body = status("")
			}
			if code != 200 || !strings.Contains(body, "sluice_noded_linked") {
				t.Fatalf("the address is free, and metrics are not served there: %d %s", code, body)
			}
			if code, body := status("0123456789abcdef"); code != http.StatusUnauthorized {
				t.Errorf("a token of a file that is wrong: %d %s", code, body)
			}
			d.stop()
		})
	}
}

// TestUnsaidIsPrivate: settings of a controller that does not know of the field name nobody.
func TestUnsaidIsPrivate(t *testing.T) {
	for _, c := range []struct {
		settings *pb.NodeSettings
		private  bool
	}{{nil, true}, {&pb.NodeSettings{}, true}, {&pb.NodeSettings{PublicJobs: true}, false}} {
		if got := namesPrivate(c.settings); got != c.private {
			t.Errorf("%v: %t", c.settings, got)
		}
	}
}
