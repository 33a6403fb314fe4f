package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Task is a task of the step, and its connection.
type Task struct {
	node    *Node
	rank    uint32
	version int  // agreed with the task; 0 = none yet
	over    bool // no more is read
}

// Task returns the state of one of the node's tasks.
func (n *Node) Task(rank uint32) *Task { return &Task{node: n, rank: rank} }

// Serve answers a task until it has finished, or breaks the protocol.
func (t *Task) Serve(conn io.ReadWriter) {
	defer t.node.left(t.rank)
	r := bufio.NewReaderSize(conn, maxLine)
	for !t.over {
		answer, err := t.next(r)
		var refused *badRequest
		if errors.As(err, &refused) {
			t.node.beyond.Say(fmt.Sprintf("mpi/pmi2: task %d: %s", t.rank, refused.text))
		}
		if err != nil {
			return
		}
		if len(answer) > 0 {
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}
}

// next reads a request and answers it.
func (t *Task) next(r *bufio.Reader) ([]byte, error) {
	if t.version != 2 {
		text, err := readLine(r)
		if err != nil {
			return nil, err
		}
		req, err := parseLine(text)
		if err != nil {
			return nil, err
		}
		if t.version == 0 {
			return t.init(req)
		}
		if strings.HasPrefix(text, "m") {
			return t.spawn(r)
		}
		return t.first(req)
	}
	body, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	req, err := parseMessage(body)
	if err != nil {
		return nil, err
	}
	return t.second(req)
}

const (
	ok     = "0"
	failed = "-1"
)

// init negotiates the version, in a line of a format common to both.
func (t *Task) init(req *request) ([]byte, error) {
	version, sub := req.field("pmi_version"), req.field("pmi_subversion")
	if req.cmd != "init" {
		return nil, bad("invalid client request: '%s' comes before 'init'", shown(req.cmd))
	}
	rc := ok
	switch {
	case version == "1" && (sub == "0" || sub == "1"):
		t.version = 1
	case version == "2" && sub == "0":
		t.version = 2
	default:
		rc = failed
		t.over = true
		t.node.beyond.Say(fmt.Sprintf("mpi/pmi2: unsupported PMI version: %s.%s", shown(version), shown(sub)))
	}
	return line("response_to_init", "rc", rc, "pmi_version", shown(version), "pmi_subversion", shown(sub)), nil
}

// shown makes a task's word fit for lines that others read.
func shown(s string) string {
	const enough = 64
	if len(s) > enough {
		s = s[:enough]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// first answers a request of version 1.
func (t *Task) first(req *request) ([]byte, error) {
	n := t.node
	switch req.cmd {
	case "get_maxes":
		return line("maxes", "rc", ok, "kvsname_max", "256", "keylen_max", "64", "vallen_max", "1024"), nil
	case "get_appnum":
		return line("appnum", "rc", ok, "appnum", "-1"), nil
	case "get_my_kvsname":
		return line("my_kvsname", "rc", ok, "kvsname", n.job.ID), nil
	case "get_universe_size":
		return line("universe_size", "rc", ok, "size", t.size()), nil
	case "put":
		if err := n.put(Pair{req.field("key"), req.field("value")}); err != nil {
			return line("put_result", "rc", failed), nil
		}
		return line("put_result", "rc", ok), nil
	case "get":
		if v, found := n.get(req.field("key")); found {
			return line("get_result", "rc", ok, "value", v), nil
		}
		return line("get_result", "rc", "1"), nil
	case "barrier_in":
		if err := t.fence(); err != nil {
			return line("barrier_out", "rc", failed), t.gone(err)
		}
		return line("barrier_out", "rc", ok), nil
	case "publish_name":
		return line("publish_result", "info", info(n.beyond.Publish(req.field("service"), req.field("port")))), nil
	case "unpublish_name":
		n.beyond.Withdraw(req.field("service"))
		return line("unpublish_result", "info", info(true)), nil
	case "lookup_name":
		if port, found := n.beyond.Lookup(req.field("service")); found {
			return line("lookup_result", "info", info(true), "port", port), nil
		}
		return line("lookup_result", "info", info(false)), nil
	case "finalize":
		t.over = true
		return line("finalize_ack", "rc", ok), nil
	case "abort":
		t.over = true
		n.beyond.Abort(t.rank)
		return nil, nil
	case "create_kvs", "destroy_kvs", "getbyidx":
		return nil, bad("PMI1 request of '%s' not supported", req.cmd) // a request of version 1.0, which nothing uses any more
	}
	return nil, bad("invalid pmi1 command received: '%s'", shown(req.cmd))
}

func code(done bool) string {
	if !done {
		return "1"
	}
	return ok
}

func info(done bool) string {
	if !done {
		return "fail"
	}
	return "ok"
}

func (t *Task) size() string { return strconv.FormatUint(uint64(t.node.job.Size), 10) }

// fence waits for all tasks of the step.
func (t *Task) fence() error {
	done, err := t.node.fence()
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-t.node.over:
		return errOver
	}
}

// gone passes on only that the step is over: then tasks get no answer.
func (t *Task) gone(err error) error {
	if errors.Is(err, errOver) {
		return err
	}
	t.node.said.Do(func() { t.node.beyond.Say("mpi/pmi2: the tasks cannot meet: " + err.Error()) })
	return nil
}

// spawn reads a multi-line request of version 1 for more processes, and refuses it.
func (t *Task) spawn(r *bufio.Reader) ([]byte, error) {
	for range maxSpawn {
		text, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if text == "endcmd" {
			t.noSpawn()
			return line("spawn_result", "rc", failed), nil
		}
	}
	return nil, bad("client request too long: more than %d lines", maxSpawn)
}

func (t *Task) noSpawn() {
	t.node.beyond.Say("mpi/pmi2: a step cannot get more tasks: MPI_Comm_spawn is not supported")
}

// second answers a message of version 2.
func (t *Task) second(req *request) ([]byte, error) {
	n := t.node
	reply := func(pairs ...string) []byte {
		if id := req.field("thrid"); id != "" {
			pairs = append([]string{"thrid", id}, pairs...)
		}
		return message(req.cmd+"-response", pairs...)
	}
	found := func(value string, has bool) []byte {
		if !has {
			return reply("rc", ok, "found", "FALSE")
		}
		return reply("rc", ok, "found", "TRUE", "value", value)
	}
	switch req.cmd {
	case "fullinit":
		return reply("rc", ok, "pmi-version", "2", "pmi-subversion", "0", "rank", strconv.FormatUint(uint64(t.rank), 10),
			"size", t.size(), "appnum", "-1", "debugged", "FALSE", "pmiverbose", "FALSE"), nil
	case "job-getid":
		return reply("rc", ok, "jobid", n.job.ID), nil
	case "info-getjobattr":
		switch key := req.field("key"); key {
		case mappingKey:
			return found(n.job.Mapping, n.job.Mapping != ""), nil
		case "universeSize":
			return found(t.size(), true), nil
		}
		return found("", false), nil
	case "info-putnodeattr":
		return reply("rc", code(n.setAttr(req.field("key"), req.field("value")) == nil)), nil
	case "info-getnodeattr":
		value, has, later := n.attr(req.field("key"), req.field("wait") == "TRUE")
		if later != nil {
			select {
			case value = <-later:
				has = true
			case <-n.over:
				return nil, errOver
			}
		}
		return found(value, has), nil
	case "kvs-put":
		return reply("rc", code(n.put(Pair{req.field("key"), req.field("value")}) == nil)), nil
	case "kvs-get":
		return found(n.get(req.field("key"))), nil
	case "kvs-fence":
		if err := t.fence(); err != nil {
			return reply("rc", failed, "errmsg", err.Error()), t.gone(err)
		}
		return reply("rc", ok), nil
	case "name-publish":
		return reply("rc", code(n.beyond.Publish(req.field("name"), req.field("port")))), nil
	case "name-unpublish":
		n.beyond.Withdraw(req.field("name"))
		return reply("rc", ok), nil
	case "name-lookup":
		if port, has := n.beyond.Lookup(req.field("name")); has {
			return reply("rc", ok, "value", port), nil
		}
		return reply("rc", "1"), nil
	case "spawn":
		t.noSpawn()
		return reply("rc", failed, "errmsg", "MPI_Comm_spawn is not supported"), nil
	case "job-connect", "job-disconnect":
		n.beyond.Say("mpi/pmi2: " + strings.Replace(req.cmd, "-", " ", 1) + " not implemented for now")
		return reply("rc", failed, "errmsg", "not supported"), nil
	case "finalize":
		t.over = true
		return reply("rc", ok), nil
	case "abort":
		t.over = true
		n.beyond.Abort(t.rank)
		return nil, nil
	}
	return nil, bad("invalid pmi2 command received: '%s'", shown(req.cmd))
}
