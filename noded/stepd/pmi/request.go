package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of requests.
const (
	maxLine    = 4 << 10  // version 1: the longest value has 1024 bytes
	maxMessage = 64 << 10 // version 2
	lengthLen  = 6        // digits of the length before a message of version 2
	maxSpawn   = 1000     // lines of a multi-line request
)

// request is a task's request.
type request struct {
	cmd    string
	fields map[string]string
}

func (r *request) field(name string) string { return r.fields[name] }

// badRequest is a breach of the protocol, with Slurm's text.
type badRequest struct{ text string }

func (b *badRequest) Error() string { return b.text }

func bad(format string, args ...any) error { return &badRequest{fmt.Sprintf(format, args...)} }

// readLine reads a line of version 1, without its end.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", bad("client request too long: more than %d bytes", r.Size())
	case err != nil:
		return "", err
	}
	return string(line[:len(line)-1]), nil
}

// readMessage reads a message of version 2, without its length.
func readMessage(r *bufio.Reader) (string, error) {
	var head [lengthLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(head[:])), 10, 32)
	if err != nil {
		return "", bad("invalid client request: %q is no length", head[:])
	}
	if n > maxMessage {
		return "", bad("client request too long: %d bytes, %d at most", n, maxMessage)
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r, body)
	return string(body), err
}

const cmdIs = "cmd="

// parseLine parses a line of version 1: words with "=", separated by spaces.
func parseLine(line string) (*request, error) {
	if !strings.HasPrefix(line, cmdIs) && !strings.HasPrefix(line, "m"+cmdIs) {
		return nil, bad("request not begin with 'cmd='")
	}
	r := &request{fields: map[string]string{}}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		if r.cmd == "" {
			r.cmd = value
			continue
		}
		if _, twice := r.fields[name]; !twice {
			r.fields[name] = value
		}
	}
	return r, nil
}

// parseMessage parses a message of version 2: "name=value;", in which ";;" stands for a semicolon.
func parseMessage(body string) (*request, error) {
	if !strings.HasPrefix(body, cmdIs) {
		return nil, bad("request not begin with 'cmd='")
	}
	r := &request{fields: map[string]string{}}
	for rest := body; rest != ""; {
		var field strings.Builder
		for {
			i := strings.IndexByte(rest, ';')
			if i < 0 {
				return nil, bad("invalid client request: a field has no end")
			}
			field.WriteString(rest[:i])
			if rest = rest[i+1:]; !strings.HasPrefix(rest, ";") {
				break
			}
			field.WriteByte(';')
			rest = rest[1:]
		}
		name, value, _ := strings.Cut(field.String(), "=")
		if r.cmd == "" {
			r.cmd = value
			continue
		}
		if _, twice := r.fields[name]; !twice {
			r.fields[name] = value
		}
	}
	return r, nil
}

// line formats an answer of version 1 from names and values.
func line(cmd string, pairs ...string) []byte {
	b := append([]byte(cmdIs), cmd...)
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, ' ')
		b = append(append(append(b, pairs[i]...), '='), pairs[i+1]...)
	}
	return append(b, '\n')
}

// message formats an answer of version 2.
func message(cmd string, pairs ...string) []byte {
	body := append([]byte(cmdIs), cmd...)
	body = append(body, ';')
	for i := 0; i < len(pairs); i += 2 {
		body = append(append(append(body, pairs[i]...), '='), strings.ReplaceAll(pairs[i+1], ";", ";;")...)
		body = append(body, ';')
	}
	return append(fmt.Appendf(nil, "%-*d", lengthLen, len(body)), body...)
}
