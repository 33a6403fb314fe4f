package container

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Values are the values of the replacement symbols of oci.conf(5).
type Values struct {
	Command []string // %@
	Bundle  string   // %b
	EnvFile string   // %e
	Job     uint32   // %j
	Spool   string   // %m
	Node    string   // %n
	PID     int      // %p, for operations on a running container
	Root    string   // %r
	Step    uint32   // %s
	Task    uint32   // %t
	User    string   // %u
	UID     uint32   // %U
}

// CheckPattern rejects symbols that oci.conf(5) does not define. also are the letters valid in addition to %j, %n, %s, %u and %U,
// which are known before a task exists.
func CheckPattern(pattern, also string) error {
	_, err := expand(pattern, func(c byte) (string, bool) { return "", strings.IndexByte("jnsuU"+also, c) >= 0 })
	return err
}

// The letters that are valid in a pattern in addition to those valid in every pattern.
const (
	InPath = ""        // ContainerPath, MountSpoolDir
	InRun  = "@bemrt"  // RunTimeCreate, RunTimeQuery, RunTimeRun, RunTimeStart
	InEnd  = "@bemprt" // RunTimeDelete, RunTimeKill
)

// Expand replaces the symbols of a pattern.
func (v *Values) Expand(pattern string) (string, error) {
	return expand(pattern, func(c byte) (string, bool) {
		switch c {
		case '@':
			quoted := make([]string, len(v.Command))
			for i, arg := range v.Command {
				quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
			}
			return strings.Join(quoted, " "), true
		case 'b':
			return v.Bundle, true
		case 'e':
			return v.EnvFile, true
		case 'j':
			return strconv.FormatUint(uint64(v.Job), 10), true
		case 'm':
			return v.Spool, true
		case 'n':
			return v.Node, true
		case 'p':
			return strconv.Itoa(v.PID), true
		case 'r':
			return v.Root, true
		case 's':
			return strconv.FormatUint(uint64(v.Step), 10), true
		case 't':
			return strconv.FormatUint(uint64(v.Task), 10), true
		case 'u':
			return v.User, true
		case 'U':
			return strconv.FormatUint(uint64(v.UID), 10), true
		}
		return "", false
	})
}

func expand(pattern string, value func(byte) (string, bool)) (string, error) {
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			out.WriteByte(pattern[i])
			continue
		}
		if i++; i == len(pattern) {
			return "", errors.New("the % at the end has no pattern letter: write %% for a percent sign")
		}
		if pattern[i] == '%' {
			out.WriteByte('%')
			continue
		}
		text, ok := value(pattern[i])
		if !ok {
			return "", fmt.Errorf("unknown pattern %%%c", pattern[i])
		}
		out.WriteString(text)
	}
	return out.String(), nil
}
