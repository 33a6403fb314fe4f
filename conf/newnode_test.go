package conf

import (
	"slices"
	"strings"
	"testing"
)

// TestNewNodes: what scontrol create says is read as a NodeName line is, with what NodeName=DEFAULT says; what is wrong is said in words.
func TestNewNodes(t *testing.T) {
	c := mustLoad(t, good+"MaxNodeCount=10\nNodeName=DEFAULT Features=later RealMemory=77\n")
	before := len(c.Nodes)
	nodes, err := c.NewNodes("d[1-2]", []Pair{{"cpus", "4"}, {"Gres", "gpu:2"}, {"State", "future"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || nodes[1].Name != "d2" || nodes[1].CPUs != 4 || nodes[1].RealMemoryMiB != 77 || nodes[1].State != "FUTURE" ||
		!slices.Equal(nodes[1].Features, []string{"later"}) || len(nodes[1].Gres) != 1 {
		t.Errorf("got %+v", nodes[len(nodes)-1])
	}
	if _, known := c.Node("d1"); known || len(c.Nodes) != before {
		t.Error("the configuration itself has the new nodes")
	}
	for names, want := range map[string]string{"d1 foo=bar": "unknown key foo on a NodeName line", "d1 cpus=x": "CPUs",
		"":    "there is no name",
		"ALL": "cannot be the name of a node", "default": "cannot be the name", "a[": "a[", "a/b": "cannot be the name",
		"d1 cpus=4 sockets=3": "contradicts"} {
		words := strings.Split(names, " ")
		var set []Pair
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			set = append(set, Pair{k, v})
		}
		if _, err := c.NewNodes(words[0], set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q in it", names, err, want)
		}
	}
}

// TestFoundNode: a host that joins is what it has found; its --conf counts beside and before that.
func TestFoundNode(t *testing.T) {
	c := mustLoad(t, good+"MaxNodeCount=10\nNodeName=DEFAULT CPUs=3 Weight=7 Features=later\n")
	found := []Pair{{"CPUs", "8"}, {"Boards", "1"}, {"Sockets", "2"}, {"CoresPerSocket", "2"},
		{"ThreadsPerCore", "2"}, {"RealMemory", "5000"}}
	n, err := c.FoundNode("z1", found, "")
	if err != nil || n.CPUs != 8 || n.Sockets != 2 || n.RealMemoryMiB != 5000 || n.Weight != 7 ||
		!slices.Equal(n.Features, []string{"later"}) {
		t.Errorf("got %+v, %v", n, err)
	}
	n, err = c.FoundNode("z1", found, `CPUs=2 RealMemory=100 Features=a,b Gres=gpu:1`)
	if err != nil || n.CPUs != 2 || n.Sockets != 2 || n.CoresPerSocket != 1 || n.RealMemoryMiB != 100 ||
		len(n.Features) != 2 || len(n.Gres) != 1 {
		t.Errorf("got %+v, %v", n, err)
	}
	for own, want := range map[string]string{"Port=1": "option 'Port=' not allowed in --conf", "nodename=x": "not allowed",
		"foo=1": "unknown key",
		"foo":   "cannot read"} {
		if _, err := c.FoundNode("z1", found, own); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q in it", own, err, want)
		}
	}
}
