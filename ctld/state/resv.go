package state

import (
	"slices"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Reservations returns the reservations by name. The slice must not be changed.
func (v *View) Reservations() []*pb.ReservationRecord { return v.resvs }

// Reservation returns a reservation, or nil.
func (v *View) Reservation(name string) *pb.ReservationRecord {
	if i, ok := findResv(v.resvs, name); ok {
		return v.resvs[i]
	}
	return nil
}

func findResv(list []*pb.ReservationRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(r *pb.ReservationRecord, n string) int { return strings.Compare(r.Name, n) })
}

// CloneReservation copies a reservation.
func CloneReservation(r *pb.ReservationRecord) *pb.ReservationRecord { return pb.ShallowCopy(r) }

// ReservationChanged: a reservation was made or changed.
type ReservationChanged struct{ Reservation *pb.ReservationRecord }

func (e ReservationChanged) apply(tx *Tx) { tx.putResv(e.Reservation.Name, e.Reservation) }

// Attrs implements Event.
func (e ReservationChanged) Attrs() []any {
	return []any{"reservation", e.Reservation.Name, "nodes", e.Reservation.Nodes}
}

// ReservationEnded: a reservation was deleted, or its time is over.
type ReservationEnded struct{ Name, Why string }

func (e ReservationEnded) apply(tx *Tx) { tx.putResv(e.Name, nil) }

// Attrs implements Event.
func (e ReservationEnded) Attrs() []any { return []any{"reservation", e.Name, "why", e.Why} }

// putResv stores a reservation, or removes it when r is nil. The list is small and copied.
func (tx *Tx) putResv(name string, r *pb.ReservationRecord) {
	list := slices.Clone(tx.next.resvs)
	i, found := findResv(list, name)
	switch {
	case r == nil && found:
		list = slices.Delete(list, i, i+1)
	case found:
		list[i] = r
	case r != nil:
		list = slices.Insert(list, i, r)
	}
	tx.next.resvs = list
	if tx.resvs == nil {
		tx.resvs = map[string]bool{}
	}
	tx.resvs[name] = true
	tx.restructure()
}
