package packages_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/boottest"
)

// page reads a page of docs.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	span  = regexp.MustCompile("`([^`]+)`")
	// prompt is what a line of a block has before a command of one host, comment what follows a command.
	prompt  = regexp.MustCompile(`^[a-z0-9]+# `)
	comment = regexp.MustCompile(`\s+# .*$`)
)

// programs are those whose command lines count as commands of a page.
var programs = strings.Fields("sluice sluice-ctld sluice-noded slurmctld slurmd scontrol sinfo squeue sbatch sacct srun systemctl journalctl " +
	"systemd-analyze systemd-sysusers make useradd chown getent man cat pkill ansible-playbook apt apt-get")

// commandsOf are the commands of a page with arguments, each once: those between back quotes, and the lines of blocks, but for
// the examples, which are run as they are.
func commandsOf(text string) (found []string) {
	add := func(line string) {
		line = strings.Join(strings.Fields(line), " ")
		if f := strings.Fields(line); len(f) > 1 && slices.Contains(programs, f[0]) && !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[2]) {
			if !strings.HasPrefix(block[1], "sh example") {
				add(comment.ReplaceAllString(prompt.ReplaceAllString(strings.TrimSpace(line), ""), ""))
			}
		}
	}
	for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		add(m[1])
	}
	return found
}

// examples are the blocks of a page that begin with "```sh example HOST", by host.
func examples(text string) map[string]string {
	blocks := map[string]string{}
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if host, ok := strings.CutPrefix(block[1], "sh example "); ok {
			blocks[host] += block[2]
		}
	}
	return blocks
}

// typed is a command of a page as it is run here: of has the page's words, do what is typed on a host, which has to contain those that are
// not placeholders; says is in what it prints, and status its exit status. Then until is run on the controller's host until it succeeds.
type typed struct {
	of, host, do, says, until string
	status                    int
}

// placeholder is what stands for something else in a word of a page.
var placeholder = regexp.MustCompile(`^[A-Z]+$|^[A-Z]+/|=[A-Z]+$|….*`)

// has tells whether a line contains the words of a command, in their order.
func (c typed) has() bool {
	rest := c.do
	for _, word := range strings.Fields(c.of) {
		_, after, found := strings.Cut(rest, placeholder.ReplaceAllString(word, ""))
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// cluster is that of docs/install.md.
type cluster map[string]*boottest.Host

// pages are the pages of docs whose commands TestPages types.
var pages = strings.Fields("install.md administrators.md backup.md site-programs.md power-saving.md containers.md")

// TestPageCommands: each command of the pages is one that TestPages types, or has a reason in notTyped.
func TestPageCommands(t *testing.T) {
	var all []string
	of := map[string]string{} // the page that has a command
	for _, name := range pages {
		for _, command := range commandsOf(page(t, name)) {
			if of[command] == "" {
				of[command], all = name, append(all, command)
			}
		}
	}
	table := slices.Concat(prepared, administration)
	blocks := examples(page(t, "install.md"))
	for _, command := range all {
		run := func(c typed) bool { return c.of == command }
		isExample := strings.Contains(strings.Join(slices.Collect(maps.Values(blocks)), ""), command)
		if notTyped[command] == "" && !isExample && !slices.ContainsFunc(table, run) {
			t.Errorf("docs/%s has a command that no test runs: %s", of[command], command)
		}
	}
	for command := range notTyped {
		if !slices.Contains(all, command) {
			t.Errorf("no page has the command %q any more", command)
		}
	}
	for _, c := range table {
		if c.of != "" && !slices.Contains(all, c.of) {
			t.Errorf("no page has the command %q any more", c.of)
		}
		if !c.has() {
			t.Errorf("%q does not run the page's %q", c.do, c.of)
		}
	}
}

// TestPages types what docs/install.md says on booted hosts, and then on that cluster the commands of the other pages.
func TestPages(t *testing.T) {
	need(t, "dpkg-deb")
	if _, err := boottest.Root(); err != nil {
		t.Skip("no hosts can be booted here: ", err)
	}
	hosts := byPage(t, examples(page(t, "install.md")))
	for _, c := range administration {
		hosts.runs(t, c)
	}
}

// byPage boots hosts and makes them a cluster as docs/install.md says.
func byPage(t *testing.T, blocks map[string]string) cluster {
	t.Helper()
	const names = "10.77.0.1 head\n10.77.0.2 n1\n10.77.0.3 login1\n10.77.0.4 n7\n10.77.0.5 w5\n"
	net, hosts := boottest.NewNet(t), cluster{}
	for _, name := range []string{"head", "n1", "login1", "n7", "w5"} {
		h := boottest.Boot(t, name, net, map[string]string{"/etc/hosts": "127.0.0.1 localhost\n" + names}, debs(t, ""))
		net.Join(h)
		h.Do("", "useradd", "--create-home", "--uid", "1234", "ada")
		hosts[name] = h
	}
	for _, c := range prepared {
		hosts.runs(t, c)
	}
	daemon := func(name string) string {
		if name == "head" {
			return "controller"
		}
		return "node"
	}
	for name, h := range hosts {
		h.Do("", "sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /debs/sluice-client.deb "+
			"/debs/sluice-slurm-compat.deb /debs/sluice-"+daemon(name)+".deb 2>&1")
	}
	said := hosts["head"].Do("", "sh", "-euc", strings.ReplaceAll(blocks["head"], "10.0.0.1", "10.77.0.1"))
	tokens := regexp.MustCompile(`(?m)^sluice-join-\S+$`).FindAllString(said, -1)
	if len(tokens) != 2 {
		t.Fatalf("the controller's commands print %d tokens: %s", len(tokens), said)
	}
	for i, name := range []string{"n1", "login1"} {
		hosts[name].Do("", "sh", "-c", "echo "+tokens[i]+" | { "+blocks[name]+"}")
	}
	hosts["head"].Until("the node is idle", func() bool { return hosts["head"].Run("", "sinfo", "-h", "-o", "%n %T").Out == "n1 idle\n" })
	got := hosts["login1"].Do("ada", "sh", "-c", "cd /home/ada && sbatch --wait --parsable -o out --wrap hostname; sacct -nXP -o state,nodelist")
	if got != "1\nCOMPLETED|n1" {
		t.Fatalf("the first job, from the login host: %q", got)
	}
	return hosts
}

// runs runs a command and looks at what it says.
func (hosts cluster) runs(t *testing.T, c typed) {
	t.Helper()
	h := hosts[c.host]
	do := c.do
	if strings.Contains(do, "@TOKEN@") { // what a command on the controller's host has left for another
		do = strings.ReplaceAll(do, "@TOKEN@", hosts["head"].Do("", "cat", "/root/token"))
	}
	r := h.Run("", "sh", "-euc", do)
	if r.Code != c.status || !strings.Contains(r.Out+r.Err, c.says) {
		t.Fatalf("on %s, %q: want status %d and %q: %v\n%s", c.host, c.do, c.status, c.says, r, h.Journal("sluice-*", "--lines=5"))
	}
	if c.until != "" {
		hosts["head"].Until(c.until, func() bool { return hosts["head"].Run("", "sh", "-c", c.until).Code == 0 })
	}
}
