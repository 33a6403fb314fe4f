package conf

import (
	"fmt"
	"strings"
	"testing"
)

const treeHead = head + "NodeName=n[1-8] CPUs=1\nPartitionName=p Nodes=ALL Default=YES\nTopologyPlugin=topology/tree\n"

func loadTree(text string) (*Config, error) {
	return Load("/etc/slurm.conf", files{"slurm.conf": treeHead, "topology.conf": text}.options())
}

func TestTopology(t *testing.T) {
	c,
		err := loadTree(
		"# racks\nSwitchName=top Switches=row[0-1] # all\nswitchname=row0 switches=s0,s1\nSwitchName=row1 Switches=s2 " +
			"LinkSpeed=40\nSwitchName=s0 Nodes=n[1-3]\nSwitchName=s1 Nodes=n4,n5\nSwitchName=s2 Nodes=n[6-8]\n")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, s := range c.Switches {
		fmt.Fprintf(&got, "%s %d %d %v %v\n", s.Name, s.Level, s.LinkSpeed, s.Nodes, s.Switches)
	}
	const want = `s0 0 1 [n1 n2 n3] []
s1 0 1 [n4 n5] []
s2 0 1 [n6 n7 n8] []
row0 1 1 [n1 n2 n3 n4 n5] [s0 s1]
row1 1 40 [n6 n7 n8] [s2]
top 2 1 [n1 n2 n3 n4 n5 n6 n7 n8] [row0 row1]
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if above := c.SwitchesAbove("n4"); fmt.Sprint(above) != "[top row0 s1]" {
		t.Errorf("n4 is below %v", above)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings: %v", c.Warnings)
	}
}

func TestTopologyFaults(t *testing.T) {
	const rest = "SwitchName=rest Nodes=n[3-8]\n"
	for text, want := range map[string]string{
		rest +
			"SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2": "topology.conf:3: node n2 is on both switch a and switch b",
		rest +
			"SwitchName=a Nodes=n[1-2],n1": "topology.conf:2: node n1 is twice on switch a",
		rest +
			"SwitchName=a Nodes=n[1-2],n9": "topology.conf:2: switch a: there is no node n9",
		rest +
			"SwitchName=a Nodes=n[1-2]\nSwitchName=t Switches=a,b": "topology.conf:3: switch t: there is no switch b",
		rest +
			"SwitchName=a Nodes=n[1-2]\nSwitchName=a Nodes=n1": "topology.conf:3: switch a was already defined at /etc/topology.conf:2",
		rest +
			"SwitchName=a Nodes=n[1-2]\nSwitchName=t Switches=a\nSwitchName=u Switches=a": "topology.conf:4: switch a is below both " +
			"t and u",
		rest +
			"SwitchName=a Nodes=n[1-2]\nSwitchName=x Switches=y\n" +
			"SwitchName=y Switches=x": "topology.conf:3: switch x is connected below itself",
		rest +
			"SwitchName=x Switches=x": "topology.conf:2: switch x is connected below itself",
		rest +
			"SwitchName=a": "topology.conf:2: switch a connects nothing",
		rest +
			"SwitchName=a Nodes=n1 Switches=rest": "topology.conf:2: switch a has both Nodes and Switches",
		rest + "SwitchName=a Nodes=n[1-": "topology.conf:2: Nodes: ",
		rest +
			"SwitchName=a Node=n1": "topology.conf:2: unknown key Node on a SwitchName line (did you mean Nodes?)",
		rest +
			"SwitchNam=a Nodes=n1": "topology.conf:2: the line begins with SwitchNam",
		rest +
			"SwitchName=a/b Nodes=n1": "topology.conf:2: \"a/b\" is not a name for a switch",
		rest + "SwitchName=a Nodes=n1 LinkSpeed=fast":                                            "topology.conf:2: LinkSpeed: ",
		rest + strings.Repeat("SwitchName=a Nodes=n1\n", 2) + "SwitchName=q Nodes=n[1-99999999]": "topology.conf:4: Nodes: ",
	} {
		_, err := loadTree(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestTopologyPlugin(t *testing.T) {
	_, err := Load("/etc/slurm.conf", files{"slurm.conf": treeHead}.options())
	if err == nil || !strings.Contains(err.Error(),
		"slurm.conf:5: TopologyPlugin=topology/tree needs /etc/topology.conf, which does not exist") {
		t.Errorf("without the file: %v", err)
	}
	_, err = load(good + "TopologyPlugin=topology/3d_torus\n")
	if err == nil || !strings.Contains(err.Error(), "TopologyPlugin=topology/3d_torus is not supported") {
		t.Errorf("another plugin: %v", err)
	}
	c, err := Load("/etc/slurm.conf", files{"slurm.conf": good, "topology.conf": "nonsense"}.options())
	if err != nil || len(c.Switches) > 0 {
		t.Errorf("a file that nobody asked for: %v", err)
	}
	c, err = loadTree("SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-7]\n")
	if err != nil || len(c.Warnings) != 2 {
		t.Errorf("two islands and a node alone: %v, %v", err, c.Warnings)
	}
}

func FuzzTopology(f *testing.F) {
	f.Add("SwitchName=top Switches=row[0-1]\nSwitchName=row0 Nodes=n[1-4]\nSwitchName=row1 Nodes=n[5-8]\n")
	f.Add("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := loadTree(text)
		if err != nil {
			return
		}
		for _, n := range c.Nodes {
			above := c.SwitchesAbove(n.Name)
			if len(above) > len(c.Switches) {
				t.Fatalf("%s is below %v", n.Name, above)
			}
		}
	})
}
