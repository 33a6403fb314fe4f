package joboptions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// limitSeconds reads a time limit as sbatch does: in minutes, with seconds rounded up; 0 and UNLIMITED mean no limit.
func limitSeconds(option, value string) (uint32, error) {
	minutes, err := timespec.ParseMinutes(value)
	if err != nil {
		return 0, invalid(option, value, err)
	}
	if minutes == timespec.Unlimited || minutes == 0 {
		return msg.Unlimited, nil
	}
	if minutes < 0 || minutes >= int64(msg.Unlimited)/60 {
		return 0, invalid(option, value, "too long for a time limit; write UNLIMITED for no limit")
	}
	return uint32(minutes) * 60, nil
}

func setTime(r *Request, value string, _ bool) (err error) {
	r.Spec.TimeLimitS, err = limitSeconds("time", value)
	return err
}

func setTimeMin(r *Request, value string, _ bool) (err error) {
	r.Spec.TimeMinS, err = limitSeconds("time-min", value)
	return err
}

func setDelayBoot(r *Request, value string, _ bool) error {
	minutes, err := timespec.ParseMinutes(value)
	if err != nil || minutes < 0 || minutes >= int64(msg.Unlimited)/60 {
		return invalid("delay-boot", value, "expected minutes or one of the forms of --time")
	}
	r.Spec.DelayBootS = uint32(minutes) * 60
	return nil
}

func (r *Request) moment(option, value string) (int64, error) {
	at, err := timespec.ParseMoment(value, r.Now, r.Now.Location(), timespec.Future)
	if err != nil {
		return 0, invalidMoment(option, value, err)
	}
	return at.UnixNano(), nil
}

func invalidMoment(option, value string, err error) error {
	pos := 0
	var m *timespec.MomentError
	if errors.As(err, &m) {
		pos = m.Pos
	}
	e := invalid(option, value, err).(*opt.ValueError)
	e.Plain = []string{fmt.Sprintf("Invalid time specification (pos=%d): %s", pos, opt.Quoted(value))}
	return e
}

func setBegin(r *Request, value string, _ bool) (err error) {
	r.Spec.BeginNs, err = r.moment("begin", value)
	return err
}

func setDeadline(r *Request, value string, _ bool) (err error) {
	r.Spec.DeadlineNs, err = r.moment("deadline", value)
	return err
}

// setSwitches reads count[@time]; the time is stored as written.
func setSwitches(r *Request, value string, _ bool) error {
	count, wait, given := strings.Cut(value, "@")
	if _, err := number("switches", count, 1); err != nil {
		return err
	}
	if given {
		if _, err := timespec.ParseSeconds(wait); err != nil {
			return invalid("switches", value, err)
		}
	}
	r.reqSwitches = value
	return nil
}
