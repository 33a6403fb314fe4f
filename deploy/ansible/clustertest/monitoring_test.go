package clustertest

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/sluice-hpc/sluice/deploy/monitoring"
)

// ask prints those of the queries, which are JSON in base64, for which Prometheus has nothing.
const ask = `python3 -c '
import base64, json, sys, urllib.parse, urllib.request
for query in json.loads(base64.b64decode(sys.argv[1])):
    url = "http://127.0.0.1:9090/api/v1/query?query=" + urllib.parse.quote(query)
    found = json.load(urllib.request.urlopen(url))["data"]["result"]
    if not any(f["value"][1] != "NaN" for f in found):
        print(json.dumps(query))' `

// monitoring is read by Prometheus on another host than the controller: each query of panels and alerts returns something, and nobody else
// reads figures.
func (s *site) monitoring() {
	want, err := monitoring.Queries()
	s.must(err)
	queries := []string{}
	for query := range want {
		queries = append(queries, query)
	}
	for _, n := range strings.Fields(s.head.do("root", "sinfo -h -N -o %N")) {
		queries = append(queries, `up{job="sluice-nodes", instance="`+n+`"} == 1`)
	}
	text, err := json.Marshal(queries)
	s.must(err)
	running := s.submit("--gres=gpu:1 --nodelist=n1 --wrap 'sleep 10000'")
	waiting := s.submit("--gres=gpu:2 --nodelist=n1 --wrap true")
	var missing string
	if !poll(func() bool {
		s.login.do("alice", "sbatch --wait --nodelist=n2 --wrap true") // so that something happens
		missing = s.login.do("root", ask+base64.StdEncoding.EncodeToString(text))
		return missing == ""
	}) {
		s.t.Errorf("Prometheus has nothing for:\n%s", missing)
	}
	s.login.do("alice", "scancel "+running+" "+waiting)
	s.state("n1", "idle")
	for _, url := range []string{"https://" + s.head.addr + ":9341/metrics", "https://" + s.n1.addr + ":9342/metrics"} {
		out, err := s.login.run("alice", "python3 -c 'import ssl, sys, urllib.request as r; "+
			"print(r.urlopen(sys.argv[1], context=ssl._create_unverified_context()).read())' "+url)
		if err == nil || !strings.Contains(out, "HTTP Error 401") {
			s.t.Errorf("alice reads %s: %v, %s", url, err, out)
		}
	}
}
