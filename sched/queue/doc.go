// Package queue holds the pending jobs (Queue) in their order.
//
// Jobs that are equal in all but their time limit and their place in the queue form a Class; the jobs of a class stand in a tree by queue
// order, in which a pass skips irrelevant parts. A job of several partitions has an Entry in a class of each. Jobs that may not start
// whatever is free (held, not eligible, array limit) are kept aside.
//
// Classes that differ only in the owners of their jobs, and so in their limits, are a Family. A family keeps its classes in a heap by their
// first jobs, and a pass opens the next class only while something may start; once nothing of the family fits, the others are not looked
// at. A class with an exhausted limit is out of the heap until the limit has room again, so it costs a pass nothing.
//
// The queue also has the priorities (from package priority), the reasons that apply to a whole family (FaultOf, AwayFor), and the jobs
// whose record does not yet have the reason of their class. Job.Pass, Taken and Done belong to the current pass.
package queue
