// Package rest has what helm's engine names of a cluster.
package rest

// Config would say where a cluster is.
type Config struct{}
