package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// nasty is what hostile names are made of: what ends rows, columns, fields and documents, what moves a terminal's cursor or turns the
// direction of writing, what formats and shells read, and what is no UTF-8.
var nasty = []string{"\n", "\r", "\t", "\v", "\f", "\b", "\a", "\x00", "\x1b[2J", "\x1b]0;x\a", "\x1b[31m", "\u009b31m", "\x7f", "|", ",",
	";", ":", "=", "%", "%s", "%all", "%.8j", `\x1f`, `\n`, "\x1f", "\x1e",
	`"`, `'`, "`", "$(id)", "&", "<", ">", "{", "}", "[", "]", "[0-9]", "(", ")", "#", "*", "?", "~", "/", "../", " ", "  ", "\u00a0",
	"\u200b", "\u200d", "\u202a", "\u202e", "\u2066", "\u2069", "\u2028", "\u2029", "\ufeff", "\u061c", "\ufffd",
	"é", "e\u0301", "日本", "🏁", "👩‍🚀", "\U000e0041", "\xff", "a", "job", "-", "--", "null", "true", "0x", "JobState=RUNNING", "NodeName=x",
	"\n   JobState=COMPLETED", "N/A", "(null)", "UNLIMITED"}

func hostileName(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(6) {
		if b.WriteString(nasty[r.IntN(len(nasty))]); r.IntN(3) == 0 {
			fmt.Fprintf(&b, "%d", r.IntN(1000))
		}
	}
	return b.String()
}

// hostileController holds count jobs, and some nodes, all of whose texts are hostile.
func hostileController(r *rand.Rand, count int) *clienttest.Controller {
	c := &clienttest.Controller{}
	name := func() string { return hostileName(r) }
	for id := range count {
		n := name()
		spec := &pb.JobSpec{Name: n, User: name(), Group: name(), Account: name(), Comment: name(), AdminComment: name(), Command: name(),
			Args: []string{name()}, WorkDir: name(),
			StdOut: name(), StdErr: name(), StdIn: name(), Features: name(), Prefer: name(), TresPerNode: name(), TresPerJob: name(),
			TresBind: name(), Licenses: name(), Dependency: name(), Qos: name(), Wckey: name(),
			Partition: name(), Reservation: name(), ReqNodes: name(), ExcNodes: name(), MailUser: name(), Network: name(),
			Container: name(), SubmitLine: name(), Extra: name(), McsLabel: name(), AllocNode: name(), Switches: name()}
		j := &pb.JobRecord{Id: uint32(id + 1), State: pb.JobState(id % 2), Reason: name(), ReasonDetail: name(), Partition: name(),
			NodeList: name(), BatchHost: name(), ResvName: name(),
			SystemComment: name(), ReqTres: name(), AllocTres: name(), SubmitNs: 1e18, StartNs: 1e18, Spec: spec}
		c.JobList = append(c.JobList, j)
	}
	for range 20 {
		c.NodeList = append(c.NodeList, &pb.NodeRecord{Name: name(), Hostname: name(), Features: name(), ActiveFeatures: name(),
			Reason: name(), ReasonUser: name(), Comment: name(), Extra: name(),
			Gres: name(), GresUsed: name(), Arch: name(), Os: name(), Version: name(), Partitions: []string{name()}, CfgTres: name(),
			AllocTres: name(), ReasonNs: 1e18})
	}
	return c
}

// TestTenThousandHostileNames: whatever jobs, users, files and nodes are called, every view prints as many rows and columns as it
// should, nothing that a terminal acts upon, and documents that can be read.
func TestTenThousandHostileNames(t *testing.T) {
	const count = 10000
	r := rand.New(rand.NewPCG(1, 2))
	c := hostileController(r, count)
	for _, test := range []struct {
		argv []string
		rows int // 0: one block of lines for each job
	}{
		{[]string{"squeue", "-a", "-t", "all"}, count + 1},
		{[]string{"squeue", "-a", "-h", "-t", "all", "-r", "-S", "j,u,P"}, count},
		{[]string{"squeue", "-h", "-t", "all", "-o", "%all"}, count},
		{[]string{"squeue", "-h", "-t", "all", "-o", "%.8i %.9P %.8j %.8u %.2t %.10M %.6D %R"}, count},
		{[]string{"squeue", "-h", "-t", "all", "-O", allNames(format.Jobs(), "")}, count},
		{[]string{"squeue", "-h", "-t", "all", "-O", allNames(format.Jobs(), ":12")}, count},
		{[]string{"squeue", "-h", "-t", "all", "--start"}, count},
		{[]string{"scontrol", "-o", "-d", "show", "job"}, count},
		{[]string{"scontrol", "show", "job"}, 0},
		{[]string{"scontrol", "-o", "show", "node"}, 20},
	} {
		t.Run(strings.Join(test.argv[:min(5, len(test.argv))], " "), func(t *testing.T) {
			stdout, stderr, exit := run(t, c, "", nil, test.argv...)
			if exit != 0 {
				t.Fatalf("exit %d: %s", exit, stderr)
			}
			lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			if test.rows != 0 && len(lines) != test.rows {
				t.Errorf("%d rows, want %d", len(lines), test.rows)
			}
			if n := strings.Count("\n"+stdout, "\n   JobState="); test.rows == 0 && n != count {
				t.Errorf("%d lines begin with JobState=, want %d", n, count)
			}
			for _, line := range lines {
				if at := unprintable(line); at >= 0 {
					t.Fatalf("a terminal would act on %q of %q", line[at:min(len(line), at+8)], line)
				}
			}
		})
	}
	for _, argv := range [][]string{{"sinfo"}, {"sinfo", "-N", "-l"}, {"sinfo", "-R"}, {"sinfo", "-s"}, {"sinfo", "-o", "%all"},
		{"sinfo", "-N", "-O", allNames(format.Nodes(), "")}} {
		stdout, stderr, exit := run(t, c, "", nil, argv...)
		if exit != 0 {
			t.Errorf("%q exits %d: %s", argv, exit, stderr)
		}
		for line := range strings.Lines(stdout) {
			if at := unprintable(strings.TrimSuffix(line, "\n")); at >= 0 {
				t.Fatalf("%q: a terminal would act on byte %d of %q", argv, at, line)
			}
		}
	}
}

// allNames asks for every field of a table by name.
func allNames[T any](table *format.Table[T], suffix string) string {
	var names []string
	for i := range table.Fields {
		if len(table.Fields[i].Names) > 0 {
			names = append(names, table.Fields[i].Names[0]+suffix)
		}
	}
	return strings.Join(names, ",")
}

// unprintable finds what a terminal acts upon, or cannot show: -1 when there is nothing.
func unprintable(s string) int {
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' ||
			r >= '\u2066' && r <= '\u2069' || r == '\u200e' || r == '\u200f' || r == '\u061c' {
			return i
		}
	}
	return -1
}

// Columns keep their places: with a width for each, every row of bytes has the same cuts.
func TestHostileNamesKeepColumns(t *testing.T) {
	c := hostileController(rand.New(rand.NewPCG(3, 4)), 2000)
	stdout, _, exit := run(t, c, "", nil, "squeue", "-h", "-t", "all", "-o", "%8i<%10j>%12u{%9P}")
	if exit != 0 {
		t.Fatalf("exit %d", exit)
	}
	for line := range strings.Lines(stdout) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) != 8+1+10+1+12+1+9+1 || line[8] != '<' || line[19] != '>' || line[32] != '{' || line[42] != '}' {
			t.Fatalf("a column has moved: %q", line)
		}
	}
}

// Documents hold the names as they are, but for what is no UTF-8.
func TestHostileNamesInDocuments(t *testing.T) {
	const count = 10000
	c := hostileController(rand.New(rand.NewPCG(5, 6)), count)
	stdout, _, exit := run(t, c, "", nil, "squeue", "--json")
	var doc struct {
		Jobs []struct {
			ID   int    `json:"job_id"`
			Name string `json:"name"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || exit != 0 {
		t.Fatalf("exit %d, not JSON: %v", exit, err)
	}
	if len(doc.Jobs) != count {
		t.Errorf("%d jobs, want %d", len(doc.Jobs), count)
	}
	for _, j := range doc.Jobs {
		if name := c.JobList[j.ID-1].Spec.Name; utf8.ValidString(name) && j.Name != name {
			t.Fatalf("job %d is called %q, in the document %q", j.ID, name, j.Name)
		}
	}
	c.JobList = c.JobList[:300]
	for _, argv := range [][]string{{"squeue", "--yaml"}, {"scontrol", "show", "job", "--yaml"}, {"sinfo", "--yaml"},
		{"scontrol", "show", "node", "--json"}, {"sinfo", "--json"}} {
		stdout, stderr, exit := run(t, c, "", nil, argv...)
		var any map[string]any
		read := yaml.Unmarshal
		if argv[len(argv)-1] == "--json" {
			read = json.Unmarshal
		}
		if err := read([]byte(stdout), &any); err != nil || exit != 0 {
			t.Errorf("%q: exit %d, cannot be read: %v %s", argv, exit, err, stderr)
		}
	}
}
