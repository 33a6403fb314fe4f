package timespec

import (
	"encoding/binary"
	"os"
	"strings"
	"time"
)

// UseZone makes time.Local the zone of TZ where that is one of POSIX, such as "JST-9" or "CET-1CEST,M3.5.0,M10.5.0/3": the C library knows
// these, and Go's only names of files. Programs call it first.
func UseZone() {
	tz := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if tz == "" || time.Local.String() != "UTC" { // which it is when Go has found no file
		return
	}
	if loc := posixZone(tz); loc != nil {
		time.Local = loc
	}
}

// unread names the zone of a rule that Go could not read. No rule can name one so.
const unread = "?"

// posixZone has Go read a rule where it does read one: at the end of a zone's file (RFC 8536), behind a table without transitions.
func posixZone(rule string) *time.Location {
	if strings.ContainsAny(rule, "\n\x00") {
		return nil
	}
	header := func(types, chars uint32) []byte {
		b := append([]byte("TZif2"), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, 0, types, chars} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return b
	}
	data := append(header(0, 0), header(1, uint32(len(unread)+1))...)
	data = append(data, 0, 0, 0, 0, 0, 0) // one type: no offset, no summer time, the first name
	data = append(data, unread+"\x00\n"+rule+"\n"...)
	loc, err := time.LoadLocationFromTZData(rule, data)
	if err != nil {
		return nil
	}
	if name, _ := time.Unix(0, 0).In(loc).Zone(); name == unread {
		return nil
	}
	return loc
}
