package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// portHolder returns which process listens on a TCP port, as far as this user may see.
func portHolder(port int) string {
	inodes := listeners(port)
	for _, pid := range pids() {
		fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + fd.Name()); err == nil && inodes[link] {
				return fmt.Sprintf("process %d (%s)", pid, commandLine(pid))
			}
		}
	}
	return "a process of another user"
}

// listeners returns the sockets that listen on a port, in the format of the links in /proc/<pid>/fd.
func listeners(port int) map[string]bool {
	const listening = "0A"
	found := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
			f := strings.Fields(sc.Text())
			if len(f) < 10 || f[3] != listening {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				found["socket:["+f[9]+"]"] = true
			}
		}
	}
	return found
}

func commandLine(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	s := strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
	if len(s) > 120 {
		s = s[:120] + "…"
	}
	return strconv.QuoteToGraphic(s)
}
