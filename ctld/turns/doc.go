// Package turns shares the controller among users.
//
// Users' calls are worked on in turn by uid, so that one user's listings of a hundred thousand jobs do not take all cores from the others
// and from the writer. As many calls work at a time as there are cores; of the waiting ones, the user who has used least goes next. A long
// call lets others go first between its pages and every few hundred records. A call has no place while its answer waits for its reader, or
// while it waits for the writer, which has turns of its own (loop.For). Operators need no turns. A user alone never waits.
//
// A query of the accounting database cannot pause. Such calls have places of their own, of which one user gets half.
package turns
