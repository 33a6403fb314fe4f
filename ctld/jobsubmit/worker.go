package jobsubmit

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	lua "github.com/yuin/gopher-lua"
	"golang.org/x/sys/unix"
)

// workerMemory bounds the worker's data, in bytes, including the script's tables and texts.
const workerMemory = 1 << 30

// maxSaid bounds the lines that a script may write to the user, and to the log.
const maxSaid = 100

// request is one call of a function of the script.
type request struct {
	Function string                    `json:"function"` // slurm_job_submit, slurm_job_modify
	Desc     map[string]any            `json:"desc"`
	Env      map[string]string         `json:"env"`
	Record   map[string]any            `json:"record,omitempty"` // of slurm_job_modify
	Parts    map[string]map[string]any `json:"parts"`
	UID      uint32                    `json:"uid"`
	Cluster  string                    `json:"cluster"`
	Limit    time.Duration             `json:"limit"` // that the caller waits
}

// reply is the result. Desc and Env contain the script's changes, with null for what it has removed.
type reply struct {
	RC    float64            `json:"rc"`
	Desc  map[string]any     `json:"desc"`
	Env   map[string]*string `json:"env"`
	User  []string           `json:"user"`
	Log   []said             `json:"log"`
	Fault string             `json:"fault"` // of the script, which did not finish
}

type said struct{ Level, Text string }

// Worker is the main function of the worker process: it loads the script and answers requests until its input ends. The first answer is
// about loading.
func Worker(script string) int {
	debug.SetMemoryLimit(workerMemory / 2)
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: workerMemory, Max: workerMemory})
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil { // print and io.write must not disturb the protocol
		os.Stdout = null
	}
	w := &worker{script: script}
	w.load()
	if err := out.Encode(w.out); err != nil || w.state == nil {
		return 1
	}
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			if err == io.EOF {
				return 0
			}
			fmt.Fprintln(os.Stderr, "job_submit:", err)
			return 1
		}
		late := time.AfterFunc(2*r.Limit, func() { os.Exit(1) }) // in case the controller itself was killed
		w.out = reply{}
		w.reload()
		w.call(&r)
		late.Stop()
		if err := out.Encode(w.out); err != nil {
			return 1
		}
	}
}

type worker struct {
	script string
	stamp  string // of the file that is loaded, or was tried last
	state  *lua.LState
	out    reply
}

func (w *worker) fileStamp() string {
	info, err := os.Stat(w.script)
	if err != nil {
		return "" // removed: the loaded script stays
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}

// reload reloads the script when it has changed. A faulty one is logged, and the previous one stays, as with Slurm.
func (w *worker) reload() {
	if s := w.fileStamp(); s != "" && s != w.stamp {
		w.load()
		if w.out.Fault != "" {
			w.say("error", w.out.Fault+", using previous script")
			w.out.Fault = ""
		}
	}
}

func (w *worker) load() {
	w.stamp = w.fileStamp()
	l := lua.NewState(lua.Options{CallStackSize: 4096, RegistrySize: 64 << 10, RegistryMaxSize: 1 << 20})
	l.SetGlobal("slurm", w.module(l))
	err := l.DoFile(w.script)
	if err == nil {
		for _, name := range []string{"slurm_job_submit", "slurm_job_modify"} {
			if _, ok := l.GetGlobal(name).(*lua.LFunction); !ok {
				err = fmt.Errorf("%s: required function %s is missing", w.script, name)
			}
		}
	}
	if err != nil {
		l.Close()
		w.out.Fault = firstLine(err)
		return
	}
	if w.state != nil {
		w.state.Close()
	}
	w.state = l
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (w *worker) say(level, text string) {
	if len(w.out.Log) < maxSaid {
		w.out.Log = append(w.out.Log, said{level, text})
	}
}

// call runs one of the script's functions and notes its changes.
func (w *worker) call(r *request) {
	l := w.state
	if m, ok := l.GetGlobal("slurm").(*lua.LTable); ok {
		m.RawSetString("CLUSTER_NAME", lua.LString(r.Cluster))
	}
	desc, env := toTable(l, r.Desc), l.NewTable()
	for k, v := range r.Env {
		env.RawSetString(k, lua.LString(v))
	}
	desc.RawSetString("environment", env)
	parts := l.NewTable()
	for name, fields := range r.Parts {
		parts.RawSetString(name, toTable(l, fields))
	}
	args := []lua.LValue{desc, parts, lua.LNumber(r.UID)}
	if r.Function == "slurm_job_modify" {
		args = []lua.LValue{desc, toTable(l, r.Record), parts, lua.LNumber(r.UID)}
	}
	err := l.CallByParam(lua.P{Fn: l.GetGlobal(r.Function), NRet: 1, Protect: true}, args...)
	if err != nil {
		w.out.Fault = firstLine(err)
		return
	}
	rc := l.Get(-1)
	l.Pop(1)
	n, ok := rc.(lua.LNumber)
	if !ok {
		w.say("info", w.script+": non-numeric return code") // counts as success, as in Slurm
	}
	w.out.RC = float64(n)
	w.changes(r, desc)
}

// changes compares the job's description after the script with the one before.
func (w *worker) changes(r *request, desc *lua.LTable) {
	w.out.Desc, w.out.Env = map[string]any{}, map[string]*string{}
	now := map[string]any{}
	desc.ForEach(func(k, v lua.LValue) {
		switch v := v.(type) {
		case lua.LString:
			now[k.String()] = string(v)
		case lua.LNumber:
			if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
				now[k.String()] = f
			}
		case lua.LBool:
			now[k.String()] = map[bool]float64{true: 1}[bool(v)]
		}
	})
	for k, v := range now {
		if was, there := r.Desc[k]; !there || was != v {
			w.out.Desc[k] = v
		}
	}
	for k := range r.Desc {
		if _, there := now[k]; !there && desc.RawGetString(k) == lua.LNil {
			w.out.Desc[k] = nil
		}
	}
	env, ok := desc.RawGetString("environment").(*lua.LTable)
	if !ok {
		return
	}
	left := maps.Clone(r.Env)
	env.ForEach(func(k, v lua.LValue) {
		name, text := k.String(), v.String()
		if was, there := r.Env[name]; !there || was != text {
			w.out.Env[name] = &text
		}
		delete(left, name)
	})
	for name := range left {
		w.out.Env[name] = nil
	}
}

func toTable(l *lua.LState, fields map[string]any) *lua.LTable {
	t := l.NewTable()
	for k, v := range fields {
		switch v := v.(type) {
		case string:
			t.RawSetString(k, lua.LString(v))
		case float64:
			t.RawSetString(k, lua.LNumber(v))
		case []any:
			list := l.NewTable()
			for i, e := range v { // job_desc.argv begins at 0
				list.RawSetInt(i, lua.LString(fmt.Sprint(e)))
			}
			t.RawSetString(k, list)
		}
	}
	return t
}

// module makes the table slurm: constants, and functions to log, to write to the user, and to parse a time.
func (w *worker) module(l *lua.LState) *lua.LTable {
	m := l.NewTable()
	for name, v := range constants {
		m.RawSetString(name, lua.LNumber(v))
	}
	logger := func(level string) *lua.LFunction {
		return l.NewFunction(func(l *lua.LState) int {
			w.say(level, formatted(l))
			return 0
		})
	}
	for name, level := range map[string]string{"log_info": "info", "log_verbose": "info", "log_error": "error", "error": "error",
		"log":       "info",
		"log_debug": "debug", "log_debug2": "debug", "log_debug3": "debug", "log_debug4": "debug"} {
		m.RawSetString(name, logger(level))
	}
	user := l.NewFunction(func(l *lua.LState) int {
		if len(w.out.User) < maxSaid {
			w.out.User = append(w.out.User, strings.Split(strings.TrimRight(formatted(l), "\n"), "\n")...)
		}
		return 0
	})
	m.RawSetString("log_user", user)
	m.RawSetString("user_msg", user)
	m.RawSetString("time_str2mins", l.NewFunction(func(l *lua.LState) int {
		n, err := timespec.ParseMinutes(l.CheckString(1))
		switch {
		case err != nil:
			l.Push(lua.LNumber(noVal))
		case n == timespec.Unlimited:
			l.Push(lua.LNumber(infinite))
		default:
			l.Push(lua.LNumber(n))
		}
		return 1
	}))
	return m
}

// formatted applies string.format to a call's arguments, as in Slurm. A single argument is also a format.
func formatted(l *lua.LState) string {
	format, ok := l.GetField(l.GetGlobal("string"), "format").(*lua.LFunction)
	if !ok {
		return l.CheckString(1)
	}
	args := make([]lua.LValue, l.GetTop())
	for i := range args {
		args[i] = l.Get(i + 1)
	}
	if len(args) > 0 { // %u is C's, and not in every Lua
		if s, ok := args[0].(lua.LString); ok {
			args[0] = lua.LString(strings.ReplaceAll(string(s), "%u", "%d"))
		}
	}
	l.Push(format)
	for _, a := range args {
		l.Push(a)
	}
	l.Call(len(args), 1)
	text := l.Get(-1).String()
	l.Pop(1)
	return text[:min(len(text), 4096)]
}

// Slurm's values for "not set" and the like.
const (
	noVal    = 4294967294
	noVal16  = 65534
	infinite = 4294967295
	noVal64  = 1.8446744073709552e19
	perCPU   = 9.2233720368547758e18 // MEM_PER_CPU
	niceZero = 2147483648            // NICE_OFFSET
)

// constants are those of Slurm 22.05.
var constants = map[string]float64{
	"SUCCESS": 0, "ERROR": -1, "FAILURE": -1, "ALLOC_SID_ADMIN_HOLD": 1, "ALLOC_SID_USER_HOLD": 2,
	"ESLURM_ACCESS_DENIED": 2002, "ESLURM_INVALID_NODE_COUNT": 2006, "ESLURM_JOB_MISSING_SIZE_SPECIFICATION": 2008,
	"ESLURM_INVALID_ACCOUNT":  2045,
	"ESLURM_INVALID_LICENSES": 2048, "ESLURM_ACCOUNTING_POLICY": 2050, "ESLURM_INVALID_TIME_LIMIT": 2051, "ESLURM_MISSING_TIME_LIMIT": 8000,
	"ESLURM_INVALID_PARTITION_NAME": 2000, "ESLURM_INVALID_QOS": 2066, "ESLURM_INVALID_GRES": 2072, "ESLURM_INVALID_FEATURE": 2029,
	"GRES_DISABLE_BIND": 524288, "GRES_ENFORCE_BIND": 16, "INFINITE": infinite, "INFINITE64": 1.8446744073709552e19,
	"JOB_SHARED_NONE": 0, "JOB_SHARED_OK": 1, "JOB_SHARED_USER": 2, "JOB_SHARED_MCS": 3, "KILL_INV_DEP": 1, "NO_KILL_INV_DEP": 2,
	"MAIL_JOB_BEGIN": 1, "MAIL_JOB_END": 2, "MAIL_JOB_FAIL": 4, "MAIL_JOB_REQUEUE": 8, "MAIL_JOB_TIME100": 16, "MAIL_JOB_TIME90": 32,
	"MAIL_JOB_TIME80": 64, "MAIL_JOB_TIME50": 128, "MAIL_JOB_STAGE_OUT": 256, "MAIL_INVALID_DEPEND": 1024,
	"MEM_PER_CPU": perCPU, "NICE_OFFSET": niceZero, "NO_VAL": noVal, "NO_VAL16": noVal16, "NO_VAL64": noVal64, "NO_VAL8": 254,
	"SHARED_FORCE": 32768, "SPREAD_JOB": 256, "USE_MIN_NODES": 512,
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
