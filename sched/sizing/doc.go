// Package sizing counts the resources of requests: in all (Count), on a node (On, Devices), over how many nodes and with
// how many tasks on each (WorkOut), and how many tasks the free part of a node is enough for (TasksOf, Most). Admission,
// planning and the placement of steps all count with it: the meaning of --cpus-per-task, --gpus-per-task, --mem-per-cpu
// and the like is decided here, from one record.Request. Which nodes, cores and devices are used they decide themselves.
// Pure; nothing here allocates but Count and WorkOut.
package sizing
