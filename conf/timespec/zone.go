package timespec

import (
	"encoding/binary"
	"os"
	"strings"
	"time"
)

// UseZone sets time.Local from a TZ in POSIX form, such as "JST-9" or "CET-1CEST,M3.5.0,M10.5.0/3". The C library reads these; Go
// only reads names of files. Programs call it first.
func UseZone() {
	tz := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if tz == "" || time.Local.String() != "UTC" { // UTC if Go has found no file
		return
	}
	if loc := posixZone(tz); loc != nil {
		time.Local = loc
	}
}

// unread is the zone name that marks a rule Go could not read. No rule can use that name.
const unread = "?"

// posixZone makes Go parse a POSIX rule in the only place where it does: the footer of a zone file (RFC 8536), here one without
// transitions.
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
	data = append(data, 0, 0, 0, 0, 0, 0) // one type: no offset, no daylight saving time, the first name
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
