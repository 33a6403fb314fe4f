package joboptions

import "github.com/sluice-hpc/sluice/client/msg"

// MailEvents reads the events of --mail-type and of scontrol update.
func MailEvents(words string) (bits uint32, ok bool) {
	r := &Request{Spec: &msg.JobSpec{}}
	err := setMailType(r, words, false)
	return r.Spec.MailType, err == nil
}
