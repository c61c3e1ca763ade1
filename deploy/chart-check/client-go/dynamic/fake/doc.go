// Package fake is there for `go mod tidy`, which reads the imports of the tests of helm's engine as well.
package fake
