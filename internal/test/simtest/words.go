package simtest

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// keyWords formats a step for traces: job.attempt and the kind of step.
func keyWords(k agent.Key) string {
	kind := "batch"
	switch {
	case k.Step == pb.ExternStep:
		kind = "extern"
	case !k.Holder():
		kind = fmt.Sprint(k.Step)
	}
	return fmt.Sprintf("%d.%d.%s", k.Job, k.Attempt, kind)
}

func reportWords(m *pb.NodeReport) string {
	var b strings.Builder
	if m.Hello != nil {
		fmt.Fprintf(&b, "hello %s;", m.Hello.BootId)
	}
	if m.History != nil {
		b.WriteString("history;")
	}
	for _, r := range append(m.Steps, m.History.GetEnded()...) {
		fmt.Fprintf(&b, " %s %s", keyWords(agent.KeyOf(r.Key)), strings.TrimPrefix(r.Phase.String(), "STEP_"))
		if r.Exit != nil {
			fmt.Fprintf(&b, " (%s)", exitWords(r.Exit))
		}
	}
	return b.String()
}

func exitWords(x *pb.ExitRecord) string {
	return fmt.Sprintf("%s %#x", x.Verdict, x.WaitStatus)
}

func orderWords(m *pb.NodeOrders) string {
	var b strings.Builder
	if m.Full {
		b.WriteString("full;")
	}
	for _, o := range m.Steps {
		fmt.Fprintf(&b, " %s %s", keyWords(agent.KeyOf(o.Key)), strings.TrimPrefix(o.Want.String(), "WANT_"))
		if o.Launch != nil {
			b.WriteString("+launch")
		}
		if o.Suspended {
			b.WriteString("+suspended")
		}
	}
	return b.String()
}

func jobWords(j *pb.JobRecord) string {
	return fmt.Sprintf("job %d attempt %d %s flags %d stop=%q reason=%s status=%#x nodes=%s", j.Id, j.Attempt,
		strings.TrimPrefix(j.State.String(), "JOB_"), j.StateFlags, j.StopReason, j.Reason, j.ExitStatus, j.NodeList)
}
