// Package placement finds the nodes for a job: now (Placer.Pick, Placer.Allocate), later (Future.Earliest), or never
// (Placer.Fault, Admitter).
//
// Questions are about a Shape, which equal requests in one partition and reservation share. For each alternative of its
// constraint a shape has Candidates: the nodes that could hold a part of the job, with an index of how well each does
// now. The index is brought up to date when it is next used.
//
// The package decides nothing: it reads package index, and holds resources only for promises, until LetGo.
package placement
