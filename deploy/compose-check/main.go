// Compose-check loads a compose file with the parser that Docker Compose itself uses and prints the services that
// it found, one a line with its image or build context, so that a file nobody can run here is still known to be read
// as it was meant.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose-check docker-compose.yml")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "compose-check: %v\n", err)
		os.Exit(1)
	}
}

func check(path string) error {
	// Of the environment nothing is taken over: the file has to be complete without it.
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("privstream"), cli.WithResolvedPaths(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	for _, name := range project.ServiceNames() {
		service := project.Services[name]
		source := service.Image
		if source == "" && service.Build != nil {
			source = "build " + filepath.Base(service.Build.Dockerfile)
		}
		fmt.Printf("%s: %s\n", name, source)
		for _, volume := range service.Volumes {
			if volume.Type != "bind" {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				return fmt.Errorf("service %s mounts %s, which is not there", name, volume.Source)
			}
		}
	}
	return nil
}
