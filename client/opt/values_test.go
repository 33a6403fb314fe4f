package opt

import (
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestValuesAreThoseOfTheMessages(t *testing.T) {
	for _, v := range [][2]uint32{{unlimited, pb.Unlimited}, {unset, pb.Unset}, {yes, pb.Yes}, {no, pb.No}, {openAppend, pb.OpenAppend},
		{openTruncate, pb.OpenTruncate}, {mailBegin, pb.MailBegin}, {mailEnd, pb.MailEnd}, {mailFail, pb.MailFail}, {mailRequeue, pb.MailRequeue},
		{mailTime100, pb.MailTime100}, {mailTime90, pb.MailTime90}, {mailTime80, pb.MailTime80}, {mailTime50, pb.MailTime50},
		{mailStageOut, pb.MailStageOut}, {mailArrayTasks, pb.MailArrayTasks}, {mailInvalidDepend, pb.MailInvalidDepend}} {
		if v[0] != v[1] {
			t.Errorf("%d here is %d in the messages", v[0], v[1])
		}
	}
	for text, code := range map[string]pb.Code{phraseTimeLimit: pb.CodeInvalidTimeLimit, phraseArray: pb.CodeInvalidArray, phraseGres: pb.CodeInvalidGres, phraseDependency: pb.CodeDependency} {
		if want := pb.NewProblem(code, "").GetPhrase(); text != want {
			t.Errorf("phrase %q is %q in the messages", text, want)
		}
	}
}
