package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// inventory is the text of an inventory: groups by name, each with lines of hosts.
type inventory struct {
	groups map[string][]string
	vars   map[string]string // YAML of group_vars/all, by name of a file
}

// line is a host's line in the inventory.
func (h *host) line(vars ...string) string {
	return strings.Join(append([]string{h.name, "ansible_host=" + h.addr}, vars...), " ")
}

// write puts an inventory into a folder of its own and gives its path.
func (b *bed) write(inv inventory) string {
	b.t.Helper()
	dir, err := os.MkdirTemp(b.dir, "inventory-")
	b.must(err)
	var text strings.Builder
	names := make([]string, 0, len(inv.groups))
	for name := range inv.groups {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&text, "[%s]\n%s\n\n", name, strings.Join(inv.groups[name], "\n"))
	}
	fmt.Fprintf(&text, "[all:vars]\nansible_user=root\nansible_ssh_private_key_file=%s\nansible_ssh_common_args='-o StrictHostKeyChecking=no "+
		"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR'\n", filepath.Join(b.dir, "key"))
	b.must(os.WriteFile(filepath.Join(dir, "hosts"), []byte(text.String()), 0o644))
	b.must(os.MkdirAll(filepath.Join(dir, "group_vars", "all"), 0o755))
	for name, yaml := range inv.vars {
		b.must(os.WriteFile(filepath.Join(dir, "group_vars", "all", name+".yml"), []byte("---\n"+yaml), 0o644))
	}
	return filepath.Join(dir, "hosts")
}

// recap is what ansible-playbook says at its end of a host.
type recap struct{ ok, changed, unreachable, failed, rescued int }

// result is what ansible-playbook has said.
type result struct {
	out   string
	err   error
	hosts map[string]recap
}

var (
	recapLine = regexp.MustCompile(`(?m)^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\s+skipped=\d+\s+rescued=(\d+)`)
	spaces    = regexp.MustCompile(`\s+`)
)

// play types ansible-playbook.
func (b *bed) play(inventory, playbook string, args ...string) result {
	b.t.Helper()
	cmd := b.inside(append([]string{"ansible-playbook", "-i", inventory, "../" + playbook, "--forks=8"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+b.dir, "ANSIBLE_CONFIG="+filepath.Join(b.dir, "ansible.cfg"),
		"ANSIBLE_HOME="+filepath.Join(b.dir, "ansible"), "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_PIPELINING=1",
		"ANSIBLE_LOCAL_TEMP="+filepath.Join(b.dir, "ansible-tmp"), "ANSIBLE_HOST_KEY_CHECKING=False", "LC_ALL=C.UTF-8",
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+filepath.Join(b.dir, "cp"))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	b.t.Logf("%s took %.0f s", playbook, time.Since(began).Seconds())
	r := result{out: string(out), err: err, hosts: map[string]recap{}}
	for _, m := range recapLine.FindAllStringSubmatch(r.out, -1) {
		var c recap
		for i, p := range []*int{&c.ok, &c.changed, &c.unreachable, &c.failed, &c.rescued} {
			_, _ = fmt.Sscan(m[i+2], p)
		}
		r.hosts[m[1]] = c
	}
	return r
}

// says tells whether a text is in what was said, however it was broken into lines.
func (r result) says(text string) bool {
	return strings.Contains(spaces.ReplaceAllString(r.out, " "), text)
}

// total is the sum over all hosts.
func (r result) total() recap {
	var sum recap
	for _, c := range r.hosts {
		sum.ok += c.ok
		sum.changed += c.changed
		sum.unreachable += c.unreachable
		sum.failed += c.failed
	}
	return sum
}

// good is a play that has to succeed on all hosts.
func (b *bed) good(inventory, playbook string, args ...string) result {
	b.t.Helper()
	r := b.play(inventory, playbook, args...)
	if r.err != nil {
		b.t.Fatalf("ansible-playbook %s %v: %v\n%s", playbook, args, r.err, r.out)
	}
	return r
}
