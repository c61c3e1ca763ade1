// Rules-check reads what Prometheus is to read, with Prometheus' own packages.
//
//	rules-check test FILE...   runs unit tests of alerts, in the format of `promtool test rules`
//	rules-check rules FILE     prints the alerts of a file as a JSON list
//	rules-check queries        reads a JSON list of queries from standard input and prints, for each, the metrics that
//	                           it selects and the labels that it matches or groups by
//
// It is not promtool itself, nor are tests evaluated by Prometheus' manager of rules over its database: these bring the
// clients of a dozen clouds and take minutes to build. Its query engine and its templates do not.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "rules-check: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) > 1 && arguments[0] == "test":
		for _, file := range arguments[1:] {
			if err := testFile(file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	case len(arguments) == 2 && arguments[0] == "rules":
		return printRules(arguments[1])
	case len(arguments) == 1 && arguments[0] == "queries":
		var queries []string
		if err := json.NewDecoder(os.Stdin).Decode(&queries); err != nil {
			return err
		}
		found := make([]selected, 0, len(queries))
		for _, query := range queries {
			each, err := selectedBy(query)
			if err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
			found = append(found, each)
		}
		return json.NewEncoder(os.Stdout).Encode(found)
	}
	return fmt.Errorf("usage: rules-check test FILE... | rules-check rules FILE | rules-check queries")
}

func printRules(file string) error {
	groups, faults := rulefmt.ParseFile(file, false, model.UTF8Validation)
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	found := []rulefmt.Rule{}
	for _, group := range groups.Groups {
		found = append(found, group.Rules...)
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
