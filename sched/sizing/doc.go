// Package sizing counts the resources of requests: in total (Count), on a node (On, Devices), over how many nodes and with how many tasks
// on each (WorkOut), and how many tasks fit on the free part of a node (TasksOf, Most). Admission, planning and the placement of steps all
// use it: the meaning of --cpus-per-task, --gpus-per-task, --mem-per-cpu and the like is decided here, from one record.Request. The choice
// of nodes, cores and devices is theirs. Pure; only Count and WorkOut allocate.
package sizing
