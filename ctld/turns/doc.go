// Package turns shares the controller among users.
//
// What users ask for is worked on in turn by uid, so that one user's listings of a hundred thousand jobs do not take all cores from the
// others and from the writer: so many calls work at a time as there are cores, and of those that wait the user goes next who has had
// least. A long call lets others have theirs between its pages and every few hundred records; while an answer waits for its reader, its
// call has no place, and none has while it waits for the writer, which has turns of its own (loop.For). Operators have no turns to wait
// for. Nobody waits here while nobody else does.
//
// What reads the accounting database cannot let go in the middle of a query. It has places of its own, of which one user has half.
package turns
