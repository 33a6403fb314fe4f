package rpc

import (
	"github.com/sluice-hpc/sluice/proto/coding"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// pageRecords and pageBytes bound one message of a stream, whichever is reached first. ttrpc's limit for a message is four mebibytes, and a
// record may have texts of many kilobytes. A record larger than pageBytes, for instance with a dependency of 32,768 conditions, has a
// message of its own.
const (
	pageRecords = 512
	pageBytes   = 1 << 20
)

// records is the number of the field that holds the records, in JobsReply, NodesReply and AccountingReply.
const records = 1

// pages sends records as they are encoded, without a message object: the encoded bytes are set in the reply as an unknown field, which
// protobuf's library writes out unchanged. The receiver sees the field of that number.
type pages struct {
	send  func(encoded []byte) error
	b     []byte
	count int
	sent  bool
}

// pagesOf sends messages of type M through send; empty makes one with everything except the records.
func pagesOf[M proto.Message](empty func() M, send func(M) error) *pages {
	return &pages{send: func(encoded []byte) error {
		m := empty()
		m.ProtoReflect().SetUnknown(encoded)
		return send(m)
	}}
}

// fieldAppender can encode some of its fields.
type fieldAppender interface {
	AppendFields(b []byte, in *pb.Fields) []byte
}

// stored is a record in encoded form, with all its fields.
type stored []byte

func (s stored) AppendFields(b []byte, _ *pb.Fields) []byte { return append(b, s...) }

// add appends a record to the page, and sends the page when it is full.
func (p *pages) add(r fieldAppender, in *pb.Fields) error { return p.put(records, r, in) }

// put is add for a field of another number.
func (p *pages) put(field int, r fieldAppender, in *pb.Fields) error {
	before := len(p.b)
	b, at := coding.Open(p.b, field)
	p.b = coding.Close(r.AppendFields(b, in), at)
	if before > 0 && len(p.b)-before > pageBytes {
		if err := p.send(p.b[:before]); err != nil {
			return err
		}
		p.b, p.count, p.sent = append(p.b[:0], p.b[before:]...), 0, true
	}
	if p.count++; p.count < pageRecords && len(p.b) < pageBytes {
		return nil
	}
	return p.flush()
}

func (p *pages) flush() error {
	err := p.send(p.b)
	p.b, p.count, p.sent = p.b[:0], 0, true // sent data has been copied
	return err
}

// end sends the rest, or an empty page when there were no records.
func (p *pages) end() error {
	if p.count > 0 || !p.sent {
		return p.flush()
	}
	return nil
}
