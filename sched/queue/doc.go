// Package queue holds the pending jobs (Queue), in the order in which they are to be considered.
//
// Jobs that are equal in all but their time limit and their place in the queue form a Class; the jobs of a class stand in a tree by queue
// order, in which a pass skips the parts that do not matter. A job of several partitions has an Entry in a class of each. Jobs that may
// not start whatever is free (held, not eligible, array limit) are kept aside. Classes that differ only in whom their jobs belong to are a
// Family, of which a pass looks at as few as it can; those that limits hold are kept out of its order.
//
// The queue also has the priorities (from package priority), the reasons that hold for a whole family (FaultOf, AwayFor), and the jobs
// whose record does not yet have the reason of their class. Job.Pass, Taken and Done belong to the pass under way.
package queue
