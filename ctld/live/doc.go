// Package live keeps what nodes say of the present moment: what their devices do, and what running steps use. It is shown (sluice gpus,
// sstat, metrics) and summed up by the hour, and it is lost when the controller ends: it is neither part of the state nor worth the
// writer's time. Each node is bounded.
package live
