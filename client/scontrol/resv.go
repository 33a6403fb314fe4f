package scontrol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// resvKey is one parameter of a reservation. least is the minimum length of an abbreviation, as in a real scontrol.
type resvKey struct {
	name  string
	least int
}

func resvKeys() []resvKey {
	return []resvKey{{"ReservationName", 3}, {"Accounts", 1}, {"BurstBuffer", 2}, {"Comment", 3}, {"CoreCnt", 5}, {"CoreCount", 5},
		{"Duration", 1}, {"EndTime", 1},
		{"Features", 2}, {"Flags", 2}, {"Groups", 1}, {"Licenses", 1}, {"MaxStartDelay", 1}, {"NodeCnt", 5}, {"NodeCount", 5}, {"Nodes", 5},
		{"PartitionName", 1}, {"Skip", 2}, {"StartTime", 1}, {"TRES", 1}, {"Users", 1}, {"Watts", 1}}
}

// resvRequest is a reservation on the command line. Its values are checked here, as by a real scontrol, and sent as written, except
// times, which are sent as seconds since 1970.
type resvRequest struct {
	c          *control
	update     bool
	req        *msg.UpdateReservationRequest
	start, end time.Time
	durationS  int64 // 0 = not given
	given      map[string]bool
	partNodes  bool // Flags=PART_NODES
	allNodes   bool // Nodes=ALL
}

// refuse reports an error as scontrol does.
func (r *resvRequest) refuse(before, text string, why ...any) int {
	what := "No reservation created."
	if r.update {
		what = "No reservation update."
	}
	var lines []string
	if before != "" {
		lines = append(lines, before)
	}
	lines = append(lines, "scontrol: error: "+text+"  "+what)
	for _, w := range why {
		lines = append(lines, fmt.Sprintf("scontrol: error: %v", w))
	}
	return r.refuseLines(lines...)
}

func (r *resvRequest) refuseLines(lines ...string) int {
	if r.update {
		lines = append(lines, "slurm_update error: No error")
	}
	return r.c.fail(lines...)
}

// isReservation reports whether a command line of create, update or delete is about a reservation, rather than about a job that
// gets one.
func isReservation(args []string) bool {
	if entity, _ := entityOf(pairs(args)); entity == "job" {
		return false
	}
	return slices.ContainsFunc(args, func(word string) bool {
		key, _, _ := strings.Cut(word, "=")
		name, _ := resvKeyOf(key)
		return name == "ReservationName"
	})
}

func resvKeyOf(word string) (name, add string) {
	key := strings.TrimRight(word, "+-")
	for _, k := range resvKeys() {
		if len(key) >= k.least && len(key) <= len(k.name) && strings.EqualFold(key, k.name[:len(key)]) {
			return k.name, word[len(key):]
		}
	}
	return "", ""
}

// parse reads the words of a create or update.
func (r *resvRequest) parse(args []string) (ok bool, exit int) {
	for i, word := range args {
		key, value, given := strings.Cut(word, "=")
		name, add := resvKeyOf(key)
		switch {
		case !given && i == 0 && name == "ReservationName":
			continue // "create reservation …" lets the controller choose the name
		case !given && r.update && name == "Skip":
			r.req.Set = append(r.req.Set, &msg.KeyValue{Key: name})
			continue
		case !given:
			return false, r.refuse("", "Misformatted parameter '"+word+"', most options have a parameter after '='.")
		case name == "":
			return false, r.refuse("", "Unknown parameter "+word+".", "can be set: "+r.known())
		case name == "ReservationName":
			r.req.Name = value
			continue
		}
		r.given[name] = value != ""
		if ok, exit := r.check(word, name, add, value); !ok {
			return false, exit
		}
		if name == "Nodes" {
			r.allNodes = strings.EqualFold(value, "ALL")
		}
		switch name {
		case "Flags": // check has set it
			continue
		case "StartTime":
			value = timespec.FormatUnix(r.start)
		case "EndTime":
			value = timespec.FormatUnix(r.end)
		}
		r.req.Set = append(r.req.Set, &msg.KeyValue{Key: name + add, Value: value})
	}
	return true, 0
}

func (r *resvRequest) known() string {
	var names []string
	for _, k := range resvKeys() {
		switch k.name {
		case "BurstBuffer", "CoreCount", "NodeCount", "Watts":
		default:
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

// check reads one value.
func (r *resvRequest) check(word, name, add, value string) (ok bool, exit int) {
	var err error
	switch name {
	case "StartTime":
		if r.start, err = r.moment(value); err != nil {
			return false, r.refuse(badMoment(value, err), "Invalid start time "+word+".", err)
		}
	case "EndTime":
		if r.end, err = r.moment(value); err != nil {
			return false, r.refuse(badMoment(value, err), "Invalid end time "+word+".", err)
		}
	case "Duration":
		minutes, err := timespec.ParseMinutes(value)
		if err != nil || minutes == 0 {
			return false, r.refuse("", "Invalid duration "+word+".", reasonsOf(err, "a reservation must last at least a minute")...)
		}
		if r.durationS = minutes * 60; minutes == timespec.Unlimited {
			r.durationS = 0
		}
	case "NodeCnt", "NodeCount":
		for _, n := range strings.Split(value, ",") {
			if _, err := strconv.ParseUint(n, 10, 24); err != nil {
				return false, r.refuseLines("scontrol: error: Invalid node count " + value)
			}
		}
		if value == "0" {
			r.given[name] = false
			return true, 0
		}
	case "Flags":
		return r.flags(add, value)
	case "MaxStartDelay":
		if _, err := timespec.ParseMinutes(value); err != nil && value != "" {
			return false, r.refuse("", "Invalid duration "+word+".", err)
		}
	case "TRES":
		if unknown := unknownTRES(value); unknown != "" {
			return false, r.refuseLines("scontrol: error: couldn't identify configured TRES '"+unknown+"'",
				"a reservation can contain cpu, node, license/NAME, gres/gpu and gres/gpu:TYPE")
		}
	case "CoreCnt", "CoreCount":
		for _, n := range strings.Split(value, ",") {
			if _, err := strconv.ParseUint(n, 10, 24); err != nil {
				return false, r.refuseLines("scontrol: error: Invalid core count " + value)
			}
		}
	case "BurstBuffer", "Watts":
		return false, r.refuse("", name+" is not supported by Sluice, which reserves nodes, cores, GPUs and licenses.")
	}
	return true, 0
}

func reasonsOf(err error, other string) []any {
	if err != nil {
		return []any{err}
	}
	return []any{other}
}

func (r *resvRequest) moment(value string) (time.Time, error) {
	now := r.c.env.Now() // in the user's time zone
	return timespec.ParseMoment(value, now, now.Location(), timespec.Future)
}

// badMoment is the message of Slurm's time parser.
func badMoment(value string, err error) string {
	var m *timespec.MomentError
	pos := 0
	if errors.As(err, &m) {
		pos = m.Pos
	}
	return fmt.Sprintf("Invalid time specification (pos=%d): %s", pos, format.Escape(value))
}

// resvFlagNames are the flags of scontrol(1); the controller reports those that it does not support.
func resvFlagNames() []string {
	return []string{"ANY_NODES", "DAILY", "FIRST_CORES", "FLEX", "HOURLY", "IGNORE_JOBS", "LICENSE_ONLY", "MAGNETIC", "MAINT",
		"NO_HOLD_JOBS_AFTER", "OVERLAP",
		"PART_NODES", "PURGE_COMP", "REPLACE", "REPLACE_DOWN", "STATIC_ALLOC", "TIME_FLOAT", "WEEKDAY", "WEEKEND", "WEEKLY"}
}

// fullResvFlags expands the flags of a list; an abbreviation has at least three letters and must be unambiguous.
func fullResvFlags(list string) (full string, ok bool) {
	words := strings.Split(list, ",")
	for i, word := range words {
		bare := strings.TrimLeft(word, "+-")
		flag, rest, timed := strings.Cut(bare, "=")
		if flag == "" {
			continue
		}
		name, known := canonicalKey(resvFlagNames(), flag)
		if !known {
			return "", false
		}
		if timed {
			name += "=" + rest
		}
		words[i] = word[:len(word)-len(bare)] + name
	}
	return strings.Join(words, ","), true
}

// flags reads Flags=, Flags+= and Flags-=.
func (r *resvRequest) flags(add, value string) (ok bool, exit int) {
	full, ok := fullResvFlags(value)
	if !ok {
		return false, r.refuse("", "Error parsing flags "+add+value+".", "flags are "+strings.Join(resvFlagNames(), ", "))
	}
	for _, f := range strings.Split(full, ",") {
		if add == "-" && slices.Contains([]string{"FIRST_CORES", "NO_HOLD_JOBS_AFTER", "OVERLAP", "REPLACE", "REPLACE_DOWN"}, f) {
			return false, r.refuse("", "Error parsing flags -"+value+".", "flag "+f+" cannot be removed from a reservation")
		}
		r.partNodes = r.partNodes || f == "PART_NODES" && add != "-"
	}
	r.req.Set = append(r.req.Set, &msg.KeyValue{Key: "Flags" + add, Value: full})
	return true, 0
}

// unknownTRES returns the first name of a list that cannot be reserved, "" if there is none.
func unknownTRES(list string) string {
	for _, word := range strings.Split(list, ",") {
		name, _, given := strings.Cut(word, "=")
		kind, _, _ := strings.Cut(strings.ToLower(name), "/")
		if given && !slices.Contains([]string{"cpu", "node", "license", "gres", "bb"}, kind) {
			return name
		}
	}
	return ""
}

// complete makes the checks of a new reservation that scontrol makes before it calls the controller.
func (r *resvRequest) complete() (ok bool, exit int) {
	switch {
	case r.start.IsZero():
		return false, r.refuse("", "A start time must be given.")
	case r.end.IsZero() && !r.given["Duration"]:
		return false, r.refuse("", "An end time or duration must be given.")
	case !r.end.IsZero() && r.end.Before(r.start):
		return false, r.refuse("", "Start time cannot be after end time.")
	case !r.end.IsZero() && r.durationS > 0 && r.start.Add(time.Duration(r.durationS)*time.Second).Unix() != r.end.Unix():
		return false, r.refuse("", "StartTime + Duration does not equal EndTime.")
	case !r.givenAny("Nodes", "NodeCnt", "NodeCount", "Licenses", "PartitionName", "CoreCnt", "CoreCount", "TRES"):
		return false, r.refuse("", "CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.")
	case !r.given["Users"] && !r.given["Groups"] && !r.given["Accounts"]:
		return false, r.refuse("", "Either Users/Groups and/or Accounts must be specified.")
	case r.given["Users"] && r.given["Groups"]:
		return false, r.refuse("", "Users and Groups are mutually exclusive.  You can have one or the other, but not both.")
	case r.partNodes && !(r.allNodes && r.given["PartitionName"]):
		return false, r.refuse("", "PART_NODES flag requires specifying a Partition and ALL nodes.")
	}
	return true, 0
}

func (r *resvRequest) givenAny(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return r.given[key] })
}

func (c *control) newResv(update bool) *resvRequest {
	return &resvRequest{c: c, update: update, req: &msg.UpdateReservationRequest{Create: !update}, given: map[string]bool{}}
}

func (c *control) createReservation(args []string) int {
	r := c.newResv(false)
	if ok, exit := r.parse(args); !ok {
		return exit
	}
	if ok, exit := r.complete(); !ok {
		return exit
	}
	reply, err := c.sendResv(r.req)
	if err != nil {
		if p := client.ProblemOf(err); p != nil && !c.opts.quiet && (p.GetCode() == uint32(msg.CodeNodesBusy) ||
			p.GetCode() == uint32(msg.CodeNodeConfig)) {
			fmt.Fprint(c.env.Stdout, "Note, unless nodes are directly requested a reservation must exist in a single partition.\n"+
				"If no partition is requested the default partition is assumed.\n")
		}
		return c.callFailed("Error creating the reservation", err)
	}
	name := r.req.Name
	if list := reply.GetOutcomes(); len(list) > 0 {
		name = list[0].GetId()
	}
	fmt.Fprintf(c.env.Stdout, "Reservation created: %s\n", format.Escape(name))
	return 0
}

func (c *control) updateReservation(args []string) int {
	r := c.newResv(true)
	if ok, exit := r.parse(args); !ok {
		return exit
	}
	if _, err := c.sendResv(r.req); err != nil {
		text, more := command.Phrase(err)
		lines := []string{"Error updating the reservation: " + text, "slurm_update error: " + text}
		if more != "" {
			lines = append(lines, more)
		}
		return c.fail(lines...)
	}
	fmt.Fprintln(c.env.Stdout, "Reservation updated.")
	return 0
}

// deleteReservation runs "delete ReservationName=NAME" and "delete reservation NAME".
func (c *control) deleteReservation(args []string) int {
	_, name, given := strings.Cut(args[0], "=")
	switch {
	case !given && len(args) == 1:
		return c.fail("scontrol: error: Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
	case !given:
		name = args[1]
	}
	if _, err := c.sendResv(&msg.UpdateReservationRequest{Name: name, Delete: true}); err != nil {
		return c.callFailed("delete_reservation "+args[0], err)
	}
	return 0
}

func (c *control) sendResv(req *msg.UpdateReservationRequest) (*msg.UpdateReply, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return conn.UpdateReservation(context.Background(), req)
}

func (s *show) reservations(id string) int {
	c, code := s.dial("slurm_load_reservations")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Reservations(s.ctx, &msg.ReservationsRequest{})
	if err != nil {
		return s.failed("slurm_load_reservations", err)
	}
	shown := slices.DeleteFunc(slices.Clone(reply.GetReservations()), func(r *msg.ReservationRecord) bool {
		return id != "" &&
			r.GetName() != id
	})
	if s.opts.document.Wanted && (len(shown) > 0 || id == "") {
		return view.ReservationsDocument(s.env, s.opts.document, shown, reply.GetNowNs())
	}
	fc := view.Context(s.env, reply.GetNowNs())
	s.stamp(fc, len(reply.GetReservations()))
	switch {
	case len(shown) == 0 && id != "":
		return s.missing("Reservation " + format.Escape(id) + " not found")
	case len(shown) == 0:
		return s.none("No reservations in the system")
	}
	var b []byte
	for _, r := range shown {
		b = format.AppendReservation(b, fc, r, s.opts.oneLine)
	}
	return s.out(b)
}

func (s *show) licenses(id string) int {
	c, code := s.dial("slurm_load_licenses")
	if c == nil {
		return code
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Licenses(s.ctx, &msg.LicensesRequest{})
	switch {
	case err != nil:
		return s.failed("slurm_load_licenses", err)
	case s.opts.document.Wanted:
		return s.licensesDocument(reply.GetLicenses(), id)
	case len(reply.GetLicenses()) == 0:
		return s.none("No licenses configured in Slurm.")
	}
	list := slices.Clone(reply.GetLicenses())
	slices.SortFunc(list, func(a, b *msg.LicenseRecord) int { return strings.Compare(a.GetName(), b.GetName()) })
	var b []byte
	for _, l := range list {
		if id == "" || l.GetName() == id {
			b = format.AppendLicense(b, l, s.opts.oneLine)
		}
	}
	return s.out(b)
}
