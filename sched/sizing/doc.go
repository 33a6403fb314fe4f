// Package sizing counts what requests come to: in all (Count), on a node (On, Devices), over how many nodes and with how many tasks on
// each (WorkOut), and how many tasks what there is of a node is enough for (TasksOf, Most). Admission, planning and the placement of steps
// within an allocation count nothing themselves: what --cpus-per-task, --gpus-per-task, --mem-per-cpu and the like come to is decided here,
// from the same record.Request. Which nodes, cores and devices it is to be they decide themselves. Pure; nothing here allocates but Count
// and WorkOut.
package sizing
