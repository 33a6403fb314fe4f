package sandbox

import "testing"

func TestStoppedSays(t *testing.T) {
	for want, s := range map[string]Stopped{
		"there is no cluster in /d":                               {Dir: "/d"},
		"cluster c was not running; nothing is left running":      {Dir: "/d", Cluster: "c"},
		"cluster c is stopped: 1 daemon; nothing is left running": {Dir: "/d", Cluster: "c", Daemons: 1},
		"cluster c is stopped: 3 daemons, 1 running job cancelled; nothing is left running, and /d is wiped": {
			Dir: "/d", Cluster: "c", Daemons: 3, Running: 1, Wiped: true},
		"cluster c is stopped: 3 daemons, 2 running and 1 pending jobs cancelled; nothing is left running": {
			Dir: "/d", Cluster: "c", Daemons: 3, Running: 2, Pending: 1},
	} {
		if got := stopped(&s); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
