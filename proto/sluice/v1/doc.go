// Package pb has the messages of commands, controller, nodes and shims, and the services between them. The records among them are
// also the controller's state and its format on disk (package state).
//
// Texts given by users, such as file names, need not be UTF-8 (ctld/admit, text.go), and views escape them. Messages only gain
// fields.
package pb
