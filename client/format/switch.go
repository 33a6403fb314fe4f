package format

import (
	"fmt"

	"github.com/sluice-hpc/sluice/client/msg"
)

// AppendSwitch appends the line of a switch (scontrol show topology).
func AppendSwitch(b []byte, s *msg.SwitchRecord) []byte {
	b = fmt.Appendf(b, "SwitchName=%s Level=%d LinkSpeed=%d", Escape(s.GetName()), s.GetLevel(), s.GetLinkSpeed())
	if s.GetNodes() != "" {
		b = fmt.Appendf(b, " Nodes=%s", Escape(s.GetNodes()))
	}
	if s.GetSwitches() != "" {
		b = fmt.Appendf(b, " Switches=%s", Escape(s.GetSwitches()))
	}
	return append(b, '\n')
}
