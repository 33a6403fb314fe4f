package joboptions

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"pgregory.net/rapid"
)

var now = time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)

// parse runs a whole command line through the table.
func parse(argv ...string) (*Request, []string, error) {
	r := New(Sbatch, "/home/u", now, os.ReadFile)
	hits, rest, err := opt.Scan(Names(Sbatch), argv, false)
	if err != nil {
		return r, rest, err
	}
	for _, h := range hits {
		if err := r.Apply(CommandLine, h); err != nil {
			return r, rest, err
		}
	}
	return r, rest, r.Finish()
}

func TestScan(t *testing.T) {
	names := []opt.Name{{Long: "alpha", Short: 'a'}, {Long: "alphabet", Short: 'b', Arg: opt.Required},
		{Long: "gamma", Short: 'g', Arg: opt.Optional},
		{Long: "name", Short: 'n', Arg: opt.Required}, {Long: "namely", Arg: opt.Required, Canon: "name"}}
	for line, want := range map[string]string{
		"-a x y":          "a= | x y",
		"-ab1 x":          "a= b=1 | x",
		"-ab 1 x":         "a= b=1 | x",
		"--alpha x":       "a= | x",
		"--alphab=1 x":    "b=1 | x",
		"--alphab 1 x":    "b=1 | x",
		"--alphabet= x":   "b= | x",
		"-g1 -g x":        "g=1 g= | x",
		"--gam=1 --gam x": "g=1 g= | x",
		"-a -- -b x":      "a= | -b x",
		"x -a":            "| x -a",
		"--nam 3 x":       "n=3 | x",
		"-":               "| -",
		"--alph x":        "error option '--alph' is ambiguous; possibilities: '--alpha' '--alphabet'",
		"--alpha=1":       "error option '--alpha' doesn't allow an argument",
		"--alphabet":      "error option '--alphabet' requires an argument",
		"-b":              "error option requires an argument -- 'b'",
		"-z":              "error invalid option -- 'z'",
		"--zeta=3":        "error unrecognized option '--zeta=3'",
		"--gamna":         "error unrecognized option '--gamna'",
	} {
		hits, rest, err := opt.Scan(names, strings.Fields(line), false)
		got := ""
		if err != nil {
			got = "error " + err.Error()
		} else {
			for _, h := range hits {
				got += names[h.Index].Long[:1] + "=" + h.Value + " "
				if names[h.Index].Long == "alphabet" {
					got = strings.TrimSuffix(got, "a="+h.Value+" ") + "b=" + h.Value + " "
				}
			}
			got = strings.TrimSpace(got + "| " + strings.Join(rest, " "))
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	_, rest, err := opt.Scan(names, []string{"x", "-a", "y", "--", "-b"}, true)
	if err != nil || !reflect.DeepEqual(rest, []string{"x", "y", "-b"}) {
		t.Errorf("permuted: %q, %v", rest, err)
	}
	_, _, err = opt.Scan(names, []string{"--gamna"}, false)
	var u *opt.UsageError
	if !errors.As(err, &u) || u.Hint != "did you mean --gamma?" {
		t.Errorf("hint %+v", u)
	}
}

func TestValues(t *testing.T) {
	type spec = msg.JobSpec
	for line, want := range map[string]*spec{
		"-J train -A acct -p a,b -q high":      {Name: "train", Account: "acct", Partition: "a,b", Qos: "high"},
		"-N2 -n 4 -c8":                         {MinNodes: 2, MaxNodes: 2, NumTasks: 4, CpusPerTask: 8},
		"-N 2-4":                               {MinNodes: 2, MaxNodes: 4},
		"-N 3-4 -n 2":                          {MinNodes: 2, MaxNodes: 2, NumTasks: 2},
		"-w n2,n1,n2 -n 1":                     {MinNodes: 1, MaxNodes: 1, NumTasks: 1, ReqNodes: "n1"},
		"-w n[1-2] -n 2":                       {NumTasks: 2, ReqNodes: "n[1-2]"},
		"-N 2,8,4":                             {MinNodes: 2, MaxNodes: 8, NodesSet: "2,8,4"},
		"-N 4-16:4":                            {MinNodes: 4, MaxNodes: 16, NodesSet: "4-16:4"},
		"-N 1k":                                {MinNodes: 1024, MaxNodes: 1024},
		"--mem=3G":                             {MemPerNodeMib: 3072},
		"--mem 0":                              {MemAll: true},
		"--mem-per-cpu=512M":                   {MemPerCpuMib: 512},
		"--mem-per-gpu=1G -G1":                 {MemPerGpuMib: 1024, MemPerTres: "gres/gpu:1024", TresPerJob: "gres/gpu:1"},
		"--tmp=2T":                             {TmpDiskMib: 2 << 20},
		"-t 90":                                {TimeLimitS: 5400},
		"-t 1:30":                              {TimeLimitS: 120},
		"-t 1-2:03:04":                         {TimeLimitS: (26*60 + 4) * 60},
		"-t 0":                                 {TimeLimitS: msg.Unlimited},
		"-t infinite":                          {TimeLimitS: msg.Unlimited},
		"--time-min=5 -t 10":                   {TimeMinS: 300, TimeLimitS: 600},
		"--begin=now+60":                       {BeginNs: now.Add(time.Minute).UnixNano()},
		"--deadline=2027-03-05T00:00":          {DeadlineNs: time.Date(2027, 3, 5, 0, 0, 0, 0, time.UTC).UnixNano()},
		"-o %x-%j.out -e none -i in.txt":       {StdOut: "%x-%j.out", StdErr: "/dev/null", StdIn: "in.txt"},
		"-D sub":                               {WorkDir: "/home/u/sub"},
		"-D /tmp/x":                            {WorkDir: "/tmp/x"},
		"--signal=USR1":                        {WarnSignal: 10, WarnSeconds: 60},
		"--signal=B:TERM@120":                  {WarnSignal: 15, WarnSeconds: 120, WarnBatch: true},
		"--signal=RB:sigusr2@0":                {WarnSignal: 12, WarnBatch: true, WarnResv: true},
		"--nice":                               {Nice: 100},
		"--nice=-5":                            {Nice: -5},
		"-H -k -O -s":                          {Hold: true, NoKill: true, Overcommit: true, Sharing: "oversubscribe"},
		"--exclusive":                          {Sharing: "exclusive"},
		"--exclusive=user":                     {Sharing: "user"},
		"--requeue":                            {Requeue: msg.Yes},
		"--requeue --no-requeue":               {Requeue: msg.No},
		"--open-mode=append":                   {OpenMode: msg.OpenAppend},
		"--mail-type=END,FAIL":                 {MailType: msg.MailEnd | msg.MailFail},
		"--mail-type=all,NONE":                 {},
		"--mail-type=NONE,begin":               {},
		"--mail-type=begin,,end":               {MailType: msg.MailBegin | msg.MailEnd},
		"--mail-type=,begin,":                  {MailType: msg.MailBegin},
		"-w n[1-3] -x n2":                      {ReqNodes: "n[1-3]", ExcNodes: "n2"},
		"--gres=gpu:a100:2,shard:1":            {TresPerNode: "gres/gpu:a100:2,gres/shard:1"},
		"--gres=gpu":                           {TresPerNode: "gres/gpu:1"},
		"-G a100:2":                            {TresPerJob: "gres/gpu:a100:2"},
		"--gpus-per-node=2 --gres=shard:1":     {TresPerNode: "gres/shard:1,gres/gpu:2"},
		"--gpus-per-task=1 -n2":                {TresPerTask: "gres/gpu:1", NumTasks: 2},
		"--tres-per-task=cpu=2,gres/gpu=1":     {TresPerTask: "gres/gpu:1", CpusPerTask: 2},
		"--cpus-per-gpu=4":                     {CpusPerTres: "gres/gpu:4"},
		"--gpu-bind=single:2":                  {TresBind: "gres/gpu:single:2"},
		"--tres-bind=gres/gpu:verbose,map:0,1": {TresBind: "gres/gpu:verbose,map_gpu:0,1"},
		"--tres-bind=gres/gpu:closest":         {TresBind: "gres/gpu:closest"},
		"--gpu-freq=high,memory=low":           {TresFreq: "gpu:high,memory=low"},
		"-B 2:4:1":                             {NumTasks: 8, SocketsPerNode: 2, CoresPerSocket: 4, ThreadsPerCore: 1},
		"-B 1-2:*:2":                           {NumTasks: 2, SocketsPerNode: 1, ThreadsPerCore: 2},
		"--hint=nomultithread":                 {Hint: "nomultithread", ThreadsPerCore: 1},
		"--hint=memory_bound":                  {Hint: "memory_bound", CoresPerSocket: 1, ThreadsPerCore: 1},
		"--threads-per-core=2 --hint=nomultithread": {ThreadsPerCore: 2},
		"--hint=nomultithread --threads-per-core=2": {ThreadsPerCore: 2},
		"--switches=1@10":                    {Switches: "1@10"},
		"-a 0-31%4":                          {Array: "0-31%4"},
		"-d afterok:12:13":                   {Dependency: "afterok:12:13"},
		"-C intel&gpu --prefer=x":            {Features: "intel&gpu", Prefer: "x"},
		"-m block:cyclic,Pack":               {Distribution: "block:cyclic,pack"},
		"-m *:*:*,NoPack":                    {Distribution: "block:cyclic:cyclic,nopack"},
		"-m Pack":                            {Distribution: "pack"},
		"-m plane=4":                         {Distribution: "plane=4"},
		"--export=NONE":                      {ExportEnv: "NONE"},
		"--priority=7 --reboot --spread-job": {Priority: 7, Reboot: true, Spread: true},
		"--wait-all-nodes=1 --profile=task":  {WaitAllNodes: true, Profile: "Task"},
		"--profile=task,ENERGY":              {Profile: "Energy,Task"},
		"--profile=all":                      {Profile: "Energy,Lustre,Network,Task"},
		"--kill-on-invalid-dep=yes":          {KillOnInvalidDep: msg.Yes},
		"--delay-boot=5 --use-min-nodes":     {DelayBootS: 300, UseMinNodes: true},
	} {
		r, _, err := parse(strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if want.WorkDir == "" {
			want.WorkDir = "/home/u"
		}
		if !reflect.DeepEqual(r.Spec, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", line, r.Spec, want)
		}
	}
}

// One of a thing is not many.
func TestCountsOfOne(t *testing.T) {
	_, _, err := parse("--gpus=1", "--gpus-per-task=2")
	var v *opt.ValueError
	if !errors.As(err, &v) || v.Hint != "1 GPU cannot be divided into tasks with 2 GPUs each" {
		t.Errorf("got %v, %+v", err, v)
	}
}

// TestGPUSummary: what was not requested is left out.
func TestGPUSummary(t *testing.T) {
	_, _, err := parse("--gpus=2", "--gpus-per-node=4")
	var v *opt.ValueError
	if !errors.As(err, &v) || v.Hint != "requested GPUs: 2 in total, 4 on each node" {
		t.Errorf("got %v, %+v", err, v)
	}
}

// What a real sbatch takes and Sluice refuses, because it is not what was meant.
func TestRefused(t *testing.T) {
	for _, argv := range [][]string{
		{"-t", "-5"}, {"-N", "-1"}, {"-n", "99999999999"}, {"-n", "4294967295"}, {"--nice=abc"}, {"--priority=x"}, {"--switches=2@x"},
		{"--gpus=-1"}, {"-J", "a\nb"}, {"-J", "a\x1b[31m"}, {"--comment=\u202egnp"}, {"-o", "a\x00"},
		{"--mem=99999999999T"},
		{"-t", "99999999999999"}, {"-w", "n[1-99999999]"}, {"--begin=2027-02-30"}, {"--tres-bind=gres/gpu:map_gpu:z"},
		{"--tres-bind=gres/gpu:nosuch"}, {"--tres-bind=gpu:closest"}, {"--tres-bind=gres/nic:closest"}, {"--time-min=20", "-t", "10"},
	} {
		_, _, err := parse(argv...)
		var v *opt.ValueError
		if !errors.As(err, &v) {
			t.Errorf("%q: %v", argv, err)
			continue
		}
		for _, l := range append(v.Lines, v.Hint) {
			if strings.ContainsFunc(l, opt.Hidden) {
				t.Errorf("%q: the message %q shows what it should not", argv, l)
			}
		}
	}
}

func TestSourcesOverride(t *testing.T) {
	r := New(Sbatch, "/", now, os.ReadFile)
	names := Names(Sbatch)
	script, _, _ := opt.Scan(names, strings.Fields("--mem=1G -p script -n 2 --exclusive --requeue --wrap=ignored"), false)
	for _, h := range script {
		if err := r.Apply(Script, h); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"SBATCH_PARTITION": "env", "SBATCH_MEM_PER_CPU": "10", "SBATCH_NO_REQUEUE": "", "SBATCH_OVERCOMMIT": "0",
		"SBATCH_WAIT": "no", "SBATCH_EXCLUSIVE": "user", "SALLOC_QOS": "no"}
	if err := r.FromEnvironment(func(n string) (string, bool) { v, ok := env[n]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	argv, _, _ := opt.Scan(names, strings.Fields("--mem-per-gpu=7 -G1 -s"), false)
	for _, h := range argv {
		if err := r.Apply(CommandLine, h); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	want := &msg.JobSpec{Partition: "env", NumTasks: 2, MemPerGpuMib: 7, MemPerTres: "gres/gpu:7", TresPerJob: "gres/gpu:1",
		Requeue: msg.No, Sharing: "oversubscribe", WorkDir: "/"}
	if !reflect.DeepEqual(r.Spec, want) || r.WrapGiven || r.Wait {
		t.Errorf("got %+v, want %+v", r.Spec, want)
	}
}

func TestTableIsSound(t *testing.T) {
	short := map[byte]Option{}
	for i := range Options {
		o := &Options[i]
		if i > 0 && (Options[i-1].Long > o.Long || Options[i-1].Long == o.Long && Options[i-1].Cmds&o.Cmds != 0) {
			t.Errorf("%s stands behind %s", o.Long, Options[i-1].Long)
		}
		if o.Short != 0 {
			if other := short[o.Short]; other.Cmds&o.Cmds != 0 { // -K and -W are one thing for srun and another one for others
				t.Errorf("-%c is %s and %s", o.Short, other.Long, o.Long)
			}
			o := *o
			o.Cmds |= short[o.Short].Cmds
			short[o.Short] = o
		}
		actions := 0
		for _, given := range []bool{o.text != nil, o.count != nil, o.flag != nil, o.set != nil, o.ignored} {
			if given {
				actions++
			}
		}
		if actions != 1 || o.Cmds == 0 || (o.group != noGroup && o.clear == nil) {
			t.Errorf("row %s: %d actions, commands %b", o.Long, actions, o.Cmds)
		}
		if (o.text != nil || o.count != nil) != (o.Arg == opt.Required) && (o.text != nil || o.count != nil) {
			t.Errorf("row %s needs an argument", o.Long)
		}
		if o.Arg != opt.NoArg && o.Meta == "" {
			t.Errorf("row %s does not name its argument", o.Long)
		}
	}
}

// Whatever is typed: no panic, every refusal has an exit code and shows no control characters.
func TestAnyWords(t *testing.T) {
	longs := make([]string, 0, len(Options))
	for i := range Options {
		longs = append(longs, Options[i].Long)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(longs).Draw(t, "option")
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-z:,@\[\]%=+\-]{0,12}`)).Draw(t, "value")
		check(t, "--"+name+"="+value)
	})
}

func check(t interface{ Fatalf(string, ...any) }, argv ...string) {
	_, _, err := parse(argv...)
	if err == nil {
		return
	}
	var v *opt.ValueError
	var u *opt.UsageError
	if errors.As(err, &u) {
		return
	}
	if !errors.As(err, &v) || v.Exit == 0 || len(v.Lines) == 0 {
		t.Fatalf("%q: %#v", argv, err)
	}
	for _, l := range append(append([]string{}, v.Lines...), v.Hint) {
		if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("%q: message %q", argv, l)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"-N2 -n4 --mem=1G", "--time=1-2:3 -d afterok:1", "--signal=B:USR1@60 -w n[1-3]",
		"--gres=gpu:a100:2 -a 1-3%2", "-B 1:2:3 --nice=-3", "--begin=now+1hour -m plane=4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) { check(t, strings.Split(line, " ")...) })
}

// TestGPUsPerNode: what the job is told of --gpus-per-node, and of nothing else.
func TestGPUsPerNode(t *testing.T) {
	for line, want := range map[string]string{"--gpus-per-node=2 --gres=shard:1": "2", "--gpus-per-node=a100:2,v100:1": "a100:2,v100:1",
		"--gres=gpu:2": "", "--gpus=4": ""} {
		r, _, err := parse(strings.Fields(line)...)
		if err != nil || r.GPUsPerNode() != want {
			t.Errorf("%s: %q, %v, want %q", line, r.GPUsPerNode(), err, want)
		}
	}
}

// TestFewerTasksThanNodes: the words are those of a real Slurm 22.05.
func TestFewerTasksThanNodes(t *testing.T) {
	for line, want := range map[string]string{
		"-N 3 -n 2":      "can't run 2 processes on 3 nodes, setting nnodes to 2",
		"-w n[1-3] -n 1": "can't run 1 processes on 3 nodes, setting nnodes to 1",
		"-N 2 -n 2":      "",
		"-N 2":           "",
	} {
		r, _, err := parse(strings.Fields(line)...)
		if err != nil || strings.Join(r.Warnings, "; ") != want {
			t.Errorf("%s: %v, %v, want %q", line, r.Warnings, err, want)
		}
	}
}

// TestRefusedJob: each command has its own words for a job that there cannot be.
func TestRefusedJob(t *testing.T) {
	for cmd, lead := range map[Commands]string{Sbatch: "Batch job submission failed", Srun: "Unable to allocate resources",
		Salloc: "Job submit/allocate failed"} {
		r := New(cmd, "/", time.Unix(0, 0), nil)
		hits, _, err := opt.Scan(Names(cmd), []string{"--dependency=abc"}, false)
		if err != nil || len(hits) != 1 {
			t.Fatal(hits, err)
		}
		var v *opt.ValueError
		if err := r.Apply(CommandLine, hits[0]); !errors.As(err, &v) || v.Lines[0] != lead+": Job dependency problem" {
			t.Errorf("%v: %v", cmd, err)
		}
	}
}
