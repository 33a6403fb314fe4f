// Package live keeps nodes' reports on the present moment: the activity of their devices, and the resource use of running steps. It is
// displayed (sluice gpus, sstat, metrics) and summed up by the hour, and it is lost when the controller ends: it is neither part of the
// state nor worth the writer's time. Each node's data is bounded.
package live
